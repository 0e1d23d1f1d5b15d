"""Many ranks of one job, read as one incident.

Each rank's evidence is diagnosed on a Dask worker (`summary`, `cluster`); what travels back is small (`result`), never
a trace. The ranks are then compared (`settle`, `collectives`, `outliers`, `compare`: pure functions) and judged
(`judgement`): who is late, who differs, and what the collectives cost without the waiting in them. Running needs the
`fleet` extra, importing does not.
"""
