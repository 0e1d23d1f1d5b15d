"""During the incident: probes that write evidence files into a folder, in the formats that the readers know.

    device.py    NVML, else the vendor's SMI      nvml.py, smi.py
    server.py    `/metrics`, polled               request.py   (bounded HTTP)
    profiler.py  the server's own profiler, on an explicit flag
    process.py   CPU of processes and threads     service.py   (which processes)
    stacks.py    a few py-spy dumps
    record.py    runs them on one schedule        folder.py, clock.py, command.py, probe.py
    screen.py    figures while it runs            watch.py     (the command)

Live is "record, then read the record": nothing is diagnosed that is not in the folder. Needs the extra `live`.
"""
