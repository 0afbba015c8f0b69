# SPDX-License-Identifier: Apache-2.0
"""Episodes outside the lab: the host's own kernel in real time, through Mahimahi or network namespaces."""
