"""Live pages on this machine: a run or a link as the coordinator sees it, a node as its owner sees it. Nothing leaves the machine.

`server` answers a browser on loopback only, `guard` turns away every request without the token of the address, `live` defines a page,
`watch` and `node` are the two pages; `ledger_view` and `rehearsals` are parts of the latter. They need Starlette and uvicorn, which come
with Flower (or with the extra `pages`).
"""
