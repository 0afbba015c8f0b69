# SPDX-License-Identifier: Apache-2.0
"""The one error type that commands turn into one line and exit code 2."""


class SageccError(Exception):
    """Bad input or a failed run; its text says what, where and what to do, in one line."""


SEE_DOCTOR = "'sagecc doctor' says what works on this machine"
"""How an error ends that says what cannot run here."""
