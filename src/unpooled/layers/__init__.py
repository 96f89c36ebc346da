"""Federation in, federation out: what happens to a message on its way.

- `compression`: answers as fewer bytes, the change since the last one quantised and coded.
- `secure`: masked sums, of which the server sees the total alone.
- `private`: noise and an account of epsilon, in process and at nodes.
- `followed`: totals sent to nodes, which compute from them what a study asks next.
- `plausible`: answers that no rows can have are refused; `moments`: how sums and second moments are checked.
- `meter`, `faults`: bytes counted and bounded, faults rehearsed.
- `folds`, `together`: rows left out for cross-validation, several fits in the same rounds.
"""
