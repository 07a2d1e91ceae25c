# The same few verbs for people and for CI. Every target installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles a module when it is first imported: to compile all of them beforehand takes longer, and a quarter of the room.
PIP := -m pip install -qq --disable-pip-version-check --no-compile
# Without what Python keeps of compiled modules, each program that a test starts would take seconds to compile them again.
unexport PYTHONDONTWRITEBYTECODE
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo)

.PHONY: install serve dist dist-test test oracle soak load security browser-test pictures alerts check web-check bench tempest lab lab-test lab-stop docs clean

install: $(VENV)/.installed

# What serving needs, with the client that the documentation uses; the tools of developers come on top of it.
$(VENV)/.serving: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Roost needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --upgrade --constraint constraints.txt pip
	$(BIN)/python $(PIP) --constraint constraints.txt --editable '.[embedded,client]'
	@touch $@

$(VENV)/.installed: $(VENV)/.serving
	$(BIN)/python $(PIP) --constraint constraints.txt --group dev --editable '.[embedded,keystone,client,notifications,senlin,tracing]'
	@touch $@

# python-senlinclient prints only with an older openstack client, Tempest and Nova bring versions of their own:
# each has an environment to itself.
.venv-senlin/.installed: constraints-senlin.txt
	test -x .venv-senlin/bin/python || $(PYTHON) -m venv .venv-senlin
	.venv-senlin/bin/python $(PIP) --constraint constraints-senlin.txt python-senlinclient python-openstackclient osc-lib openstacksdk setuptools
	@touch $@

.venv-tempest/.installed: constraints-tempest.txt
	test -x .venv-tempest/bin/python || $(PYTHON) -m venv .venv-tempest
	.venv-tempest/bin/python $(PIP) --constraint constraints-tempest.txt tempest senlin-tempest-plugin
	@touch $@

.venv-nova/.installed:
	test -x .venv-nova/bin/python || $(PYTHON) -m venv .venv-nova
	.venv-nova/bin/python $(PIP) nova==34.0.0 'SQLAlchemy<2.1'
	@touch $@

serve: $(VENV)/.serving
	$(BIN)/roost serve

# A wheel in dist/, which works without this checkout; dist-test installs it elsewhere and serves from there.
dist: $(VENV)/.serving
	rm -rf build dist
	$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist .

dist-test: install dist
	ROOST_DIST=1 $(BIN)/python -m pytest tests/packaging

# A container image, localhost/roost, from Debian's packages and the wheels of Roost and what it needs: see deploy/container.
# No registry is asked for a base, and nothing is fetched while the image is built.
.PHONY: wheels image
wheels: dist
	$(BIN)/python -m pip download -qq --disable-pip-version-check --dest dist/wheels --python-version 3.11 \
		--only-binary :all: --constraint constraints.txt "$$(echo dist/roost-*.whl)[keystone,notifications,tracing]"

image: export BUILDAH_ISOLATION ?= chroot
image: export STORAGE_DRIVER ?= vfs
image: wheels /usr/bin/buildah /usr/bin/mmdebstrap
	mmdebstrap -q --variant=minbase --include=python3,python3-venv,ca-certificates bookworm dist/base.tar
	base=$$(buildah from scratch) && buildah add -q $$base dist/base.tar / >/dev/null && buildah commit -q --rm $$base roost-base >/dev/null
	buildah bud -q --format docker --build-arg BASE=localhost/roost-base --tag roost -f deploy/container/Containerfile .
	tried=$$(buildah from --pull-never localhost/roost) && buildah run $$tried -- roost --version; status=$$?; buildah rm $$tried >/dev/null; exit $$status

test: install .venv-senlin/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Programs of the system that some tests drive, and are skipped without: from Debian's packages, as root or through sudo.
.PHONY: tools
tools: /usr/sbin/haproxy /usr/sbin/nginx /usr/sbin/pgbouncer /usr/bin/systemd-analyze
/usr/sbin/haproxy: PACKAGE = haproxy
/usr/sbin/nginx: PACKAGE = nginx-light
/usr/sbin/pgbouncer: PACKAGE = pgbouncer
/usr/bin/systemd-analyze: PACKAGE = systemd
/usr/bin/buildah: PACKAGE = buildah
/usr/bin/mmdebstrap: PACKAGE = mmdebstrap
/usr/sbin/haproxy /usr/sbin/nginx /usr/sbin/pgbouncer /usr/bin/systemd-analyze /usr/bin/etcd /usr/bin/patroni /usr/lib/postgresql /usr/bin/buildah /usr/bin/mmdebstrap:
	@command -v apt-get >/dev/null || { echo "$@ is missing, and there is no apt-get to install it."; exit 1; }
	$(AS_ROOT) apt-get update -qq
	$(AS_ROOT) env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $(PACKAGE)

# PostgreSQL under Patroni, etcd, PgBouncer and HAProxy, two APIs and two engines on this machine, until Ctrl-C; and what
# fails there, each HA_ROUNDS (3) times: see docs/high-availability.md.
.PHONY: ha ha-test
ha: install ha-tools
	$(BIN)/python -m tests.ha

ha-test: install ha-tools
	ROOST_HA=1 $(BIN)/python -m pytest -s tests/ha

.PHONY: ha-tools
ha-tools: /usr/sbin/haproxy /usr/sbin/pgbouncer /usr/bin/etcd /usr/bin/patroni /usr/lib/postgresql
/usr/bin/etcd: PACKAGE = etcd-server
/usr/bin/patroni: PACKAGE = patroni
/usr/lib/postgresql: PACKAGE = postgresql

# The dashboard's tests need a Chromium of the system (from Debian's packages, as root or through sudo), what drives it,
# and axe, which judges how accessible a page is.
/usr/bin/chromium:
	@command -v apt-get >/dev/null || { echo "The browser tests need Chromium at $@, and there is no apt-get to install it."; exit 1; }
	$(AS_ROOT) apt-get update -qq
	$(AS_ROOT) apt-get install -y -qq chromium

.venv-browser/.installed: constraints-browser.txt | $(VENV)/.installed
	$(BIN)/python $(PIP) --upgrade --target .venv-browser --constraint constraints-browser.txt playwright axe-playwright-python
	@touch $@

browser-test: install /usr/bin/chromium .venv-browser/.installed
	PYTHONPATH=.venv-browser $(BIN)/python -m pytest tests/browser -n 2 --dist loadfile

# The same tests, which also take the pictures in docs/images.
pictures: install /usr/bin/chromium .venv-browser/.installed
	ROOST_PICTURES=1 PYTHONPATH=.venv-browser $(BIN)/python -m pytest tests/browser/test_dashboard.py tests/browser/test_large.py

# promtool comes with Debian's prometheus, which is unpacked and not installed: no server is to run here.
.venv-prometheus/usr/bin/promtool .venv-prometheus/bin/prometheus-alertmanager: .ci/prometheus-alertmanager
	@command -v apt-get >/dev/null || { echo "The alerts are tested with programs of Prometheus, and there is no apt-get to get them from."; exit 1; }
	mkdir -p .venv-prometheus
	cd .venv-prometheus && apt-get download -qq prometheus prometheus-alertmanager && for each in *.deb; do dpkg -x $$each .; done
	install -D $< .venv-prometheus/bin/prometheus-alertmanager
	@touch .venv-prometheus/usr/bin/promtool

# The alerts themselves, and the guide in which the Alertmanager calls a receiver.
alerts: install .venv-prometheus/usr/bin/promtool .venv-prometheus/bin/prometheus-alertmanager
	.venv-prometheus/usr/bin/promtool check rules deploy/prometheus/roost.rules.yml
	.venv-prometheus/usr/bin/promtool test rules deploy/prometheus/roost.rules.test.yml
	$(BIN)/python -m pytest tests/docs -k alarm

# The placement core against the oracle in its long form: more than 100,000 cases, others every time.
oracle: install
	ROOST_ORACLE=4 $(BIN)/python -m pytest tests/placement/test_scheduler_properties.py tests/placement/test_remedy.py \
		tests/placement/test_index.py

# The drills for longer: make soak SOAK="--minutes 60 --seeds 1 2 3 --apis 4"
soak: install
	$(BIN)/python -m tests.faults.soak $(SOAK)

# Sustained traffic, and then a hostile tenant beside an ordinary one, for so many minutes.
load: install
	$(BIN)/python -m tests.faults.load
	$(BIN)/python -m tests.faults.hostile --minutes $${HOSTILE_MINUTES:-30}

check: install web-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# eslint and TypeScript judge the dashboard's modules. npm installs them, with their settings, into .venv-web.
.venv-web/.installed: .ci/web/package.json .ci/web/eslint.config.js .ci/web/tsconfig.json
	@command -v npm >/dev/null || { echo "make check needs npm (Node.js 18.18 or newer) for eslint and tsc, which check roost/web."; exit 1; }
	mkdir -p .venv-web
	cp .ci/web/package.json .ci/web/eslint.config.js .ci/web/tsconfig.json .venv-web
	npm install --prefix .venv-web --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

web-check: .venv-web/.installed
	.venv-web/node_modules/.bin/eslint --config .venv-web/eslint.config.js roost/web
	.venv-web/node_modules/.bin/tsc --project .venv-web

bench: install .venv-nova/.installed /usr/bin/chromium .venv-browser/.installed
	PYTHONPATH=.venv-browser $(BIN)/python -m bench

tempest: install .venv-tempest/.installed .venv-nova/.installed
	$(BIN)/python -m tests.tempest.compute
	$(BIN)/python -m tests.tempest.nova_schemas
	$(BIN)/python -m tests.tempest clustering

# The clients' own functional tests, from their packages as published, against a served Roost.
.venv-suites/.installed: constraints-suites.txt
	test -x .venv-suites/bin/python || $(PYTHON) -m venv .venv-suites
	.venv-suites/bin/python $(PIP) --constraint constraints-suites.txt python-openstackclient openstacksdk python-glanceclient \
		python-novaclient tempest oslotest testscenarios ddt pytest pytest-timeout
	@touch $@

# The collection openstack.cloud comes in the package of all collections, of which it is a small part.
.venv-ansible/.installed: constraints-ansible.txt
	test -x .venv-ansible/bin/python || $(PYTHON) -m venv .venv-ansible
	.venv-ansible/bin/python $(PIP) --constraint constraints-ansible.txt ansible-core openstacksdk
	.venv-ansible/bin/python -m pip download -qq --disable-pip-version-check --no-deps --dest .venv-ansible/wheel \
		--constraint constraints-ansible.txt ansible
	.venv-ansible/bin/python -c 'import glob, zipfile; \
		wheel = zipfile.ZipFile(glob.glob(".venv-ansible/wheel/ansible-*.whl")[0]); \
		wheel.extractall(".venv-ansible/collections", \
			[each for each in wheel.namelist() if each.startswith("ansible_collections/openstack/cloud/")])'
	rm -r .venv-ansible/wheel
	@touch $@

.PHONY: suites suites-short ansible
suites: install .venv-suites/.installed ansible
	$(BIN)/python -m tests.suites

suites-short: install .venv-suites/.installed
	$(BIN)/python -m tests.suites --short --messages

ansible: install .venv-ansible/.installed
	$(BIN)/python -m tests.suites.ansible

# The plug-in inside each Nova that is in use, each in an environment of its own, with libraries of its time; and Roost in
# front of it, as far as the samples of its API tell.
NOVAS := 27.5.1 28.3.1 29.4.0 30.3.0 31.3.1 32.2.1 33.0.2 34.0.0
.PHONY: nova-matrix
nova-matrix: $(NOVAS:%=.venv-nova-%/.tested)

.venv-nova-%/.installed:
	test -x .venv-nova-$*/bin/python || $(PYTHON) -m venv .venv-nova-$*
	.venv-nova-$*/bin/python $(PIP) --constraint constraints-nova-$(firstword $(subst ., ,$*)).txt nova==$* setuptools
	@touch $@

.venv-nova-%/.tested: .venv-nova-%/.installed $(wildcard roost-nova/roost_nova/*.py) tests/nova/real_nova.py roost/clouds/nova.py tests/nova/test_samples.py | install
	@echo "Nova $*"
	OS_NOVA_DISABLE_EVENTLET_PATCHING=true PYTHONPATH=roost-nova:bench .venv-nova-$*/bin/python -W ignore tests/nova/real_nova.py
	ROOST_NOVA=$$(echo .venv-nova-$*/lib/python*/site-packages/nova) $(BIN)/python -m pytest tests/nova/test_samples.py
	@touch $@

# Clusters out of a database that Senlin 16 makes, with its own migrations, in a MariaDB; without Senlin and MariaDB the
# same tests run in `make test`, on a stored copy of such a database.
.venv-senlin-16/.installed: constraints-senlin-16.txt
	test -x .venv-senlin-16/bin/python || $(PYTHON) -m venv .venv-senlin-16
	.venv-senlin-16/bin/python $(PIP) --constraint constraints-senlin-16.txt senlin==16.0.0 setuptools pymysql
	@touch $@

.venv-mariadb/.installed:
	@command -v apt-get >/dev/null || { echo "MariaDB comes from Debian's packages, and there is no apt-get to get them with."; exit 1; }
	mkdir -p .venv-mariadb
	cd .venv-mariadb && apt-get download -qq mariadb-server mariadb-server-core mariadb-client-core libmariadb3 liburing2 libaio1
	cd .venv-mariadb && for package in *.deb; do dpkg -x $$package .; done
	@touch $@

.PHONY: senlin-import-test
senlin-import-test: install .venv-senlin-16/.installed .venv-mariadb/.installed
	ROOST_SENLIN=.venv-senlin-16/bin/python ROOST_MARIADB=.venv-mariadb $(BIN)/python -m pytest tests/imports

# A real, small OpenStack on this machine, in .lab: see lab/README.md.
lab: install
	$(BIN)/python -m lab up

lab-test: lab .venv-senlin-16/.installed
	$(BIN)/python -m pytest tests/lab

lab-stop: install
	$(BIN)/python -m lab stop

# More of what an attacker would try than `make test` has time for.
security: install
	ROOST_EXAMPLES=$${ROOST_EXAMPLES:-50} $(BIN)/python -m pytest tests/security

docs: install
	$(BIN)/codespell README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf .venv .venv-* .roost .lab build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
