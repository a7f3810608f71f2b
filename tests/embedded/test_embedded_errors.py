"""The errors that `aiogroup.embedded` exports can be sent to another process, as by a worker of a test run."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiogroup.embedded import BrokerRefusal, StuckError, VirtualTimeError


@pytest.mark.parametrize("kind", [BrokerRefusal, StuckError, VirtualTimeError])
def test_an_error_survives_pickling_and_copying(kind):
    error = kind("what happened")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
