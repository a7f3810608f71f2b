"""`pytest -p tests.simulation.planting` runs tests with the bug PLANTED_BUG, planted before anything is imported."""

from __future__ import annotations

import os

from tests.simulation.planted_bugs import TESTED_BUGS, plant

plant(next(each for each in TESTED_BUGS if each.name == os.environ["PLANTED_BUG"]))
