# SPDX-License-Identifier: Apache-2.0
"""`python -m sagecc`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):  # noqa: PTH100, PTH120
    del sys.path[0]  # the working directory, which has modules of anyone; a checkout's own stays

from sagecc.cli import errors_in_one_line, main

if __name__ == "__main__":
    with errors_in_one_line():  # Python itself may run out of memory as it enters main()
        main()
