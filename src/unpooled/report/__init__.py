"""The report of a run as one HTML file, its model card, and the pictures in them; no plotting library, no network.

Nothing is sent and no row is asked for: everything is read from the run folder and from the fitted model.
Read `page` first (the order of a report), then `folder` (what a run folder holds), `kinds` (what each kind of model shows),
`markup` and `svg` (tables and charts as text), `card` (the model card).
"""
