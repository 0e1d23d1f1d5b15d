"""Many ranks of one job, read as one incident.

Each rank's evidence is diagnosed on a Dask worker (`summary`, `cluster`); what travels back is small (`result`), never
a trace. Those that are shown to be of one job (`settle`, `one_job`, `in_step`) are then compared (`collectives`,
`outliers`, `compare`) and judged (`judgement`), all by pure functions: who is late, who differs, and what the
collectives cost without the waiting in them. Running needs the `fleet` extra, importing does not.
"""
