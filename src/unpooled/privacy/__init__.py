"""Differential privacy of single rows: noisy sums, what they cost, and the refusal of what would cost too much. Sends nothing of its own.

Read in this order:

- `accountant`: every look is a Gaussian mechanism, so mu^2 adds up; exact epsilon(delta) and back.
- `sampler`: the discrete Gaussian in integer arithmetic, from a seed of bytes.
- `noise`: the seed of a look, the grid, and the noise on a Tree of floats.
- `clipping`: public bounds by column, rows scaled to [-1, 1], vectors shortened to a ball.
- `exact`: sums over rows without rounding errors, so that the sensitivity holds to the last digit.
- `sensitivity`: which questions have declared how far one row can move their answer.
- `release`: from an exact answer to one that may leave; what a node does with a look.

The protected unit is one row, added or removed, with all of its values and which of them are missing. The number of rows is not public.

`unpooled.layers.private` puts it to work in this process; nodes do it by their own policy.
"""
