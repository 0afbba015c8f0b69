# SPDX-License-Identifier: Apache-2.0
"""`python -m sagecc`."""

from sagecc.cli import main

if __name__ == "__main__":
    main()
