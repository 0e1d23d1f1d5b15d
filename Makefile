# Everything happens in .venv; each target sets up what it needs, once for each change of the pins.
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check install --quiet -c constraints.txt
PINS   := pyproject.toml constraints.txt
REPORT := out/triage.html
CASE   := playbook/incidents/p800-exponential-fallback
export MPLBACKEND := Agg
export PYDEVD_DISABLE_FILE_VALIDATION := 1

.PHONY: help report test lab lint notebooks clean

help:
	@echo "make report     the triage of the incident that ships, as one offline HTML file"
	@echo "make test       every check and test"
	@echo "make lab        JupyterLab on the notebooks"
	@echo "make notebooks  execute the recorded notebooks again and store their outputs"

report: $(VENV)/.report
	@$(PY) -m xpu_triage diagnose $(CASE)/faulty.json.gz --report $(REPORT)

NBVAL := --nbval-current-env --nbval-cell-timeout=60
# The notebooks apart: nbval starts coverage inside each kernel when it sees --cov, and the kernel then never answers.
test: $(VENV)/.dev lint
	$(PY) -m pytest -n auto --dist loadfile --nbval $(NBVAL) notebooks/0[0-3]*.ipynb notebooks/06*.ipynb
	$(PY) -m pytest -n auto --dist loadfile --nbval-lax $(NBVAL) notebooks/0[45]*.ipynb
	$(PY) -m pytest -n auto --dist loadfile --cov --cov-report=term tests

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy

lab: $(VENV)/.notebooks
	$(VENV)/bin/jupyter lab --ServerApp.root_dir=. $(if $(filter 0,$(shell id -u)),--allow-root) \
		--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url= \
		notebooks/00_triage.ipynb

notebooks: $(VENV)/.dev
	$(PY) tools/notebooks.py

# The traces that ship, recorded in the lab: byte for byte the same each time.
.PHONY: incidents
incidents: $(VENV)/.lab
	$(PY) tools/incidents.py
	$(PY) tools/baselines.py

$(VENV)/.lab: $(PINS) | $(PY)
	@$(PIP) -e '.[lab]'
	@touch $@

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .coverage

$(PY):
	@echo "setting up $(VENV) (once) ..." >&2
	@python3 -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); \
		python3 -m pip install --quiet --user virtualenv 2>/dev/null || \
		python3 -m pip install --quiet --user --break-system-packages virtualenv; \
		python3 -m virtualenv --quiet $(VENV); }

$(VENV)/.report: $(PINS) | $(PY)
	@$(PIP) -e '.[report]'
	@touch $@

$(VENV)/.notebooks: $(PINS) | $(PY)
	@$(PIP) -e '.[notebooks,live]'
	@touch $@ $(VENV)/.report

$(VENV)/.dev: $(PINS) | $(PY)
	@$(PIP) -e '.[dev,bench,lab]'
	@touch $@ $(VENV)/.notebooks $(VENV)/.report $(VENV)/.lab
