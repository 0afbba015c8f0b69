# SPDX-License-Identifier: Apache-2.0
"""Training runs that are compared: each is trained, plays in leagues, and leaves a file in results/."""
