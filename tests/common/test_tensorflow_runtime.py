# SPDX-License-Identifier: Apache-2.0
"""TensorFlow as the learner loads it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow


def test_keras_is_loaded_by_its_first_use_alone() -> None:
    code = (
        "import sys\n"
        "from sagecc.common.tensorflow_runtime import tf\n"
        "print('tf_keras' in sys.modules, 'tf_keras.src.optimizers' in sys.modules)\n"
        "print(tf.keras.layers.Dense(3).units, 'tf_keras.src.optimizers' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n3 True\n"
