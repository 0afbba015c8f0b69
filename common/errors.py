# SPDX-License-Identifier: Apache-2.0
"""The error type that commands report as one line, with exit code 2."""


class SageccError(Exception):
    """Bad input or a failed run; its text says what, where and what to do, in one line."""


SEE_DOCTOR = "'sagecc doctor' says what works on this machine"
"""Last part of the message of an error about what cannot run on this machine."""
