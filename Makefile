# Each target sets up what it needs: `make test` or `make demo` in a fresh clone is enough.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-the-demo$(if $(KAFKA),-on-kafka)
DOCS_STAMP := $(VENV)/.installed-for-the-docs
.DEFAULT_GOAL := help
.PHONY: help venv jars near check fast test test-kafka properties soak demo bench bench-quick bench-recovery bench-spark dist docs format clean \
  test-python test-this-python sanitize sanitized fuzz

# Containers often tell Python not to write bytecode. The tests start hundreds of processes, and each would compile the
# package again. So the bytecode is kept in the virtual environment, and the clone stays clean.
ifdef PYTHONDONTWRITEBYTECODE
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache
endif

help:
	@echo "make test         set up, then the fast tests, the simulations, tests/kafka on the embedded broker, and on Kafka what judges that broker"
	@echo "make test-kafka   set up, then all of tests/kafka on real Kafka"
	@echo "make properties   the property tests with eight times the examples of make test, and with three times the simulations"
	@echo "make soak         10,000 simulations of whole groups (SEEDS=n; SEED=n replays one with its trace)"
	@echo "make demo         set up, then two members share a topic and one is killed (KAFKA=1: on Apache Kafka)"
	@echo "make near         the tests of one room and 50 simulations, while you edit it (ROOM=offsets)"
	@echo "make check        format, lint, types and the tests of the client, before a commit"
	@echo "make format       format the code as 'make check' expects it"
	@echo "make bench        the benchmarks, more than an hour (make bench-quick: the small ones, a few minutes)"
	@echo "make bench-spark  1,000,000 records that Spark drains into Parquet, three times"
	@echo "make bench-recovery  coming back to 1,000,000 records: time to the first live record, age of live records, catch-up (QUICK=1: small)"
	@echo "make test-python  the most telling tests on another Python (PYTHON=python3.13), with and without the C"
	@echo "make sanitize     the C under AddressSanitizer and UndefinedBehaviorSanitizer (gcc), compared with the Python"
	@echo "make fuzz         mutated input for the same build (MINUTES=60; INPUT=file repeats an input)"
	@echo "make docs         the documentation as a site, in build/site (a broken link fails)"
	@echo "make dist         the sdist, a wheel for each Python here and one without the C, in dist/"
	@echo "make clean        remove the virtual environment and the caches of the tools"

venv: $(STAMP)

# Each candidate is run, because version managers leave commands behind that do not start.
PYTHONS := python3.11 python3
define ENVIRONMENT
@if ! $(PY) -c '' 2>/dev/null; then \
  for python in $(PYTHONS); do \
    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
  done; \
  if [ -z "$$found" ]; then \
    echo "error: Python 3.11 or newer is missing (Debian: apt-get install python3.11 python3.11-venv;" \
      "macOS: brew install python@3.11)" >&2; exit 1; \
  fi; \
  if ! $$found -c 'import ensurepip, venv' 2>/dev/null; then \
    echo "error: $$found has no venv module (Debian: apt-get install python3-venv)" >&2; exit 1; \
  fi; \
  echo "virtual environment of $$($$found --version) in $(VENV)"; \
  $$found -m venv --clear $(VENV); \
fi
@$(PY) -m pip --version >/dev/null 2>&1 || { echo "error: $(VENV) has no pip; run 'make clean' and try again" >&2; exit 1; }
@# The build back end is installed from the constraints too, so that every build uses the same one.
$(PIP) setuptools
endef
PIP = $(PY) -m pip install -q --disable-pip-version-check -c constraints.txt
define SAY_COMPILED
@$(PY) -c 'from aiogroup._core.native import IS_COMPILED as c; print("aiogroup._core.native is", "compiled" if c else \
  "NOT compiled (no C compiler, or no Python.h): records are slower, tests of the C are left out")'
endef
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard aiogroup/_core/native/*.[ch])

$(STAMP): $(SOURCES)
	$(ENVIRONMENT)
	@# Only pip 25.1 and newer have --group; Python 3.11 comes with an older pip.
	$(PY) -c 'import tomllib; groups = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]; \
	  print(*(line for group in groups.values() for line in group), sep="\n")' > $(VENV)/groups.txt
	$(PIP) --no-build-isolation -e '.[cli,devkafka,fastapi,faststream,otel,prometheus,spark]' -r $(VENV)/groups.txt
	$(SAY_COMPILED)
	@touch $@

# Only what the demo needs, without PySpark and the tools: even with Kafka and Java a quarter of the whole installation.
$(DEMO_STAMP): $(SOURCES)
	$(ENVIRONMENT)
	$(PIP) --no-build-isolation -e '.$(if $(KAFKA),[devkafka])'
	$(SAY_COMPILED)
	@touch $@

# Only what builds the site. The docstrings are read from the sources, so the package itself is not installed.
$(DOCS_STAMP): pyproject.toml constraints.txt
	$(ENVIRONMENT)
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["docs"], sep="\n")' \
	  > $(VENV)/docs.txt
	$(PIP) -r $(VENV)/docs.txt
	@touch $@

jars: $(STAMP)
	$(PY) -m aiogroup.devkafka fetch

# The tests that need no Kafka. They spend four tenths of their time waiting for processes: hence three workers for two
# processors.
WITHOUT_KAFKA := -m "not kafka and not simulation"
FAST = $(PY) -m pytest $(WITHOUT_KAFKA) --ignore=tests/kafka --ignore=tests/simulation --ignore=tests/groups -n 3

# One room: its own tests, the tests of the runtime part that carries it out, the scripted groups that exercise it, and
# simulations of 50 seeds.
ROOM := membership
GROUPS_OF_membership := kip_62 late_hand_over liveness_events unanswered_session withheld_partitions self_assignment
GROUPS_OF_offsets := commits_in_callbacks held_positions no_position redelivery
GROUPS_OF_fetching := fresh_topics memory_and_moves no_position other_topics refused_positions
GROUPS_OF_delivery := one_by_one paused_blocks redelivery requests_and_stop
GROUPS_OF_recovery := held_positions redelivery
GROUPS_OF_telemetry := health inside liveness_events quiet
RUNTIME_OF_membership := coordinator heartbeat heartbeat_news
RUNTIME_OF_offsets := committer leader_offsets
RUNTIME_OF_fetching := inbox socket_receiver
RUNTIME_OF_delivery := handling requests
RUNTIME_OF_recovery := catch_up recoveries
RUNTIME_OF_net := coordinator socket_receiver
RUNTIME_OF_metadata := refresher
RUNTIME_OF_loop := clock computing_threads current retries supervisor virtual_loop
NEAR = $(wildcard tests/$(ROOM) tests/test_$(ROOM).py) $(GROUPS_OF_$(ROOM):%=tests/groups/test_%.py) \
  $(RUNTIME_OF_$(ROOM):%=tests/runtime/test_%.py)
near: $(STAMP)
	$(PY) -m pytest -m "not kafka and not lengthy" -n 2 $(or $(strip $(NEAR)),$(error no room is called $(ROOM): see docs/architecture.md))
	$(PY) -m tests.simulation --seeds 50

# The client alone. The embedded broker's own tests run only if the broker, or code that it shares with the client, has
# changed.
CLIENT := tests/assignors tests/delivery tests/fetching tests/membership tests/native tests/offsets tests/protocol \
  tests/recovery tests/runtime $(wildcard tests/test_*.py)
SHARED := $(addprefix aiogroup/,embedded _core/protocol _core/values.py _command/broker.py errors.py structs.py)
BROKER = $(if $(shell git status --porcelain -- $(SHARED) tests/embedded),tests/embedded)
PAGES := --line-length 88 README.md docs/*.md
check: $(STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff format --check $(PAGES)
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest $(WITHOUT_KAFKA) -n 3 $(CLIENT) $(BROKER)

# Processes that die in simulations, and members that are left behind in groups, leave consumers unclosed. Python frees
# them at some later time, with a warning. So both kinds of tests have sessions of their own. In the session of the
# simulations every test ignores these warnings (tests/simulation/conftest.py).
LONG = $(PY) -m pytest -n 2 -m "simulation and not kafka and not lengthy"
SIMULATED := tests/simulation
SCRIPTED := tests/groups tests/delivery tests/recovery
# Tests on Kafka, embedded or real, wait more than they compute, so there are more workers than processors. With real Kafka
# all workers share one node. Tests that stop nodes run on one worker, which has a cluster of its own
# (tests/support/workers.py). Tests with Spark compute, so they run one at a time, in one Spark session. Tests marked
# `thorough` run only in `make test-kafka`, and on the embedded broker only in `make test test-kafka`.
# Only the files with tests on Kafka are named: to collect all files, a worker would compute for twelve seconds, not six.
TESTS_ON_KAFKA := tests/kafka tests/test_readme.py tests/test_types.py
ON_EMBEDDED := $(PY) -m pytest $(TESTS_ON_KAFKA) -n 4 --dist loadgroup
ON_REAL := $(PY) -m pytest $(TESTS_ON_KAFKA) --broker real -n 3 --dist loadgroup -o kafka_cluster_shared=true
WITH_SPARK := $(PY) -m pytest $(wildcard tests/kafka/test_spark_*.py) --broker real -m
# `make test test-kafka` runs everything on both brokers. Tests that both targets would run on real Kafka run once.
IS_JUDGED := $(if $(filter test-kafka,$(MAKECMDGOALS)),,yes)
# I/O-bound jobs run beside CPU-bound ones, which get a lower priority. Spark's tests get a middle one, because their
# sessions expire if they wait too long. Simulations never wait for I/O, so they run last, when the rest is done.
test: jars
	@$(PY) -m tests.support.side_by_side \
	  '$(ON_EMBEDDED) -m "kafka and not spark$(if $(IS_JUDGED), and not thorough)"' \
	  'nice -n 10 $(FAST) && nice -n 10 $(LONG) $(SCRIPTED) && nice -n 10 $(LONG) $(SIMULATED)' \
	  $(if $(IS_JUDGED),'nice -n 5 $(WITH_SPARK) "spark and not thorough" && $(ON_REAL) -m "real_kafka and not spark and not thorough"')

test-kafka: jars
	$(ON_REAL) -m "kafka and not spark"
	$(WITH_SPARK) "spark"

# Property tests run with few examples in `make test`, and with eight times as many here. Whole simulations run with three
# times as many seeds.
LOOKING_LONGER := $(shell grep -rlE --include='test_*.py' 'support.effort|mark.lengthy' tests)
properties: $(STAMP)
	EXAMPLES_FACTOR=8 $(PY) -m pytest -m "not kafka" $(filter-out tests/simulation/%,$(LOOKING_LONGER)) -n 2
	EXAMPLES_FACTOR=8 $(PY) -m pytest -m "not kafka" $(filter tests/simulation/%,$(LOOKING_LONGER)) -n 2

# Another Python, in an environment of its own: fast tests and simulations with and without the C, and the most telling
# tests on Kafka, with asyncio and with uvloop.
PYTHON := python3.13
ON_KAFKA := $(addprefix tests/kafka/test_,$(addsuffix .py,commit cooperative delivery_processed heartbeat_thread \
  pure_python stop uvloop))
test-python:
	$(MAKE) VENV=.venv-$(notdir $(PYTHON)) PYTHONS=$(PYTHON) test-this-python

test-this-python: jars
	$(FAST)
	$(LONG) $(SIMULATED)
	$(LONG) $(SCRIPTED)
	$(PY) -m pytest $(ON_KAFKA) --broker real -n 2 --dist loadgroup
	AIOGROUP_PURE_PYTHON=1 $(FAST)
	AIOGROUP_PURE_PYTHON=1 $(LONG) $(SIMULATED)
	AIOGROUP_PURE_PYTHON=1 $(LONG) $(SCRIPTED)
	EVENT_LOOP=uvloop $(PY) -m pytest $(ON_KAFKA) --broker real -n 2 --dist loadgroup
	EVENT_LOOP=uvloop AIOGROUP_PURE_PYTHON=1 $(PY) -m pytest $(ON_KAFKA) --broker real -n 2 --dist loadgroup

# The C with gcc's sanitizers. It is built in a copy of the clone, because ordinary processes cannot load it: the
# sanitizer's library must be loaded first. With PYTHONMALLOC=malloc the sanitizer sees each Python object. Leaks are not
# reported, because Python itself does not free all its memory.
SANITIZED := build/sanitized
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZED_PY = cd $(SANITIZED) && LD_PRELOAD=$$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 $(abspath $(PY))
sanitized: $(STAMP)
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	cp -R aiogroup aiogroup_pytest.py tests pyproject.toml setup.py README.md LICENSE $(SANITIZED)
	find $(SANITIZED) -name '*.so' -delete
	gcc -O2 -g -fPIC -c tests/native/coverage.c -o $(SANITIZED)/coverage.o
	cd $(SANITIZED) && CC=gcc CFLAGS="$(SANITIZE) -fsanitize-coverage=trace-pc -fno-omit-frame-pointer -g" \
	  LDFLAGS="$(SANITIZE) coverage.o" $(abspath $(PY)) setup.py -q build_ext --inplace
	@$(SANITIZED_PY) -c 'from aiogroup._core import native; \
	  raise SystemExit(not native.IS_COMPILED and f"error: the sanitized C cannot be imported: {native.IMPORT_ERROR}")'

# The tests that compare the C with the Python. pytest must not capture the sanitizers' reports.
sanitize: sanitized
	$(SANITIZED_PY) -m pytest tests/native tests/fetching \
	  tests/protocol/test_fetch_answers.py::test_c_and_python_find_the_same tests/protocol/test_protocol_fetch_shortcut.py \
	  --capture=sys -n 2

MINUTES := 60
fuzz: sanitized
	$(SANITIZED_PY) -m tests.native.fuzz $(if $(INPUT),--input $(abspath $(INPUT)),--minutes $(MINUTES) \
	  --folder $(abspath build/fuzz) $(if $(KEEP),--keep --corpus $(abspath tests/native/corpus)))

# Runs SEEDS=n simulations from seed FIRST on, on all cores; SEED=n replays one seed, with its trace.
SEEDS := 10000
FIRST := 0
soak: $(STAMP)
	$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST))

fast: $(STAMP)
	$(FAST)

# If the whole environment is installed already, the demo uses it.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
	$(if $(KAFKA),$(PY) -m aiogroup.devkafka fetch)
	$(PY) -m examples.demo $(if $(KAFKA),--kafka)

bench: jars
	$(PY) -m benchmarks

bench-quick: jars
	$(PY) -m benchmarks --quick

bench-recovery: jars
	$(PY) -m benchmarks.recovering $(if $(QUICK),--quick)

bench-spark: jars
	$(PY) -m benchmarks.draining_spark
	$(PY) -m benchmarks.reading_spark

# The variable silences an advertisement by the theme's authors.
docs: $(if $(wildcard $(STAMP)),$(STAMP),$(DOCS_STAMP))
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# All wheels are built from the sdist: one for each Python on this machine, and one without the C, which pip takes if no
# other fits. Only the environment's own Python has the build back end; for the others pip fetches it. The egg-info that a
# build leaves behind is removed: another build would read its file list, and Python would read its version. Without -g0
# the compiled C has debug information, which quadruples its size and names the build folder.
VERSION_MANAGERS := $(HOME)/.pyenv/versions/*/bin $(HOME)/.local/share/uv/python/*/bin
WHEELS_FOR := $(foreach minor,1 2 3 4,python3.1$(minor) $(wildcard $(VERSION_MANAGERS:=/python3.1$(minor))))
TAG := -c 'import sys; print(sys.implementation.cache_tag)'
WHEEL := $(PY) -m pip -q --disable-pip-version-check
OF_SDIST := wheel --no-deps -w dist dist/aiogroup-*.tar.gz
dist: $(STAMP)
	rm -rf dist *.egg-info
	$(PY) -m build --no-isolation --sdist
	CFLAGS=-g0 $(WHEEL) $(OF_SDIST) --no-build-isolation
	@done=$$($(PY) $(TAG)); for python in $(WHEELS_FOR); do \
	  tag=$$($$python $(TAG) 2>/dev/null) || continue; \
	  case " $$done " in *" $$tag "*) continue;; esac; done="$$done $$tag"; echo "a wheel for $$python"; \
	  CFLAGS=-g0 PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	    $(WHEEL) --python "$$(command -v $$python)" $(OF_SDIST) || exit 1; \
	done
	AIOGROUP_PURE_PYTHON=1 $(WHEEL) $(OF_SDIST) --no-build-isolation
	rm -rf *.egg-info
	@ls -l dist

format: $(STAMP)
	$(PY) -m ruff format .
	$(PY) -m ruff format $(PAGES)
	$(PY) -m ruff check --fix .

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
