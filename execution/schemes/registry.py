# SPDX-License-Identifier: Apache-2.0
"""Schemes in user space by name, the project's and one's own, and what identifies the code that drives a flow."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import cast

from sagecc.common import code, versions
from sagecc.common.errors import SageccError
from sagecc.common.inputs import read_regular
from sagecc.execution.schemes.rivals import RIVALS
from sagecc.execution.schemes.scheme import SchemeClass
from sagecc.policy.artefact import policy_sha256
from sagecc.schemas.schemes import POLICY_PREFIX, USER_SPACE, python_class

CLASSES: Mapping[str, SchemeClass] = MappingProxyType(
    {name: scheme for rival in RIVALS for name, scheme in rival.schemes.items()}
)
"""By the names of schemas.schemes.USER_SPACE."""

_VERSIONS: Mapping[str, int] = MappingProxyType({name: rival.version for rival in RIVALS for name in rival.schemes})


def scheme_class(scheme: str) -> SchemeClass:
    """Return the class of a scheme in user space.

    Args:
        scheme: a name of USER_SPACE, or `python:PATH.py:CLASS`.

    Raises:
        SageccError: There is no such file or class, or it is no scheme.
    """
    if scheme in USER_SPACE:
        return CLASSES[scheme]
    path, name = python_class(scheme)
    scheme_type = getattr(_module(scheme, path, _text(path)), name, None)
    if not inspect.isclass(scheme_type):
        raise SageccError(f"{scheme}: {path} has no class '{name}'")
    if not callable(getattr(scheme_type, "on_tick", None)):
        raise SageccError(f"{scheme}: class '{name}' has no method on_tick(self, sample)")
    return cast("SchemeClass", scheme_type)


def driver_sha256(scheme: str) -> str:
    """Hash what drives a scheme's flows from the host, so that trajectories are not taken for those of other code.

    The project's own schemes count by their versions (common.versions), one's own by the syntax of its file too
    (common.code); other files beside it are not followed.

    Args:
        scheme: a policy (`policy:PATH`), or a scheme in user space.

    Returns:
        SHA-256 in hex.

    Raises:
        SageccError: There is none.
    """
    if scheme.startswith(POLICY_PREFIX):
        return policy_sha256(scheme)
    if scheme in USER_SPACE:
        text = f"{scheme} {versions.USER_SPACE} {_VERSIONS[scheme]}"
    else:
        path, name = python_class(scheme)
        try:
            own = code.digest(_text(path))
        except SyntaxError as error:
            raise SageccError(f"{scheme}: line {error.lineno}: {error.msg}") from None
        text = f"{name} {own} {versions.USER_SPACE} {sorted(_VERSIONS.items())}"  # it may be made of the project's own
    return hashlib.sha256(text.encode()).hexdigest()


def _text(path: str) -> str:
    try:
        return read_regular(Path(path)).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SageccError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


@cache
def _module(scheme: str, path: str, text: str) -> ModuleType:
    """Return the module of a file of this text; a changed file is another module."""
    name = f"sagecc_scheme_{hashlib.sha256(f'{path} {text}'.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=path)
    assert spec
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    sys.modules[name] = module  # as imported: dataclasses look themselves up there
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except SyntaxError as error:
        raise SageccError(f"{scheme}: line {error.lineno}: {error.msg}") from None
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        raise SageccError(f"{scheme}: line {line}: {type(error).__name__}: {error}") from error
    return module
