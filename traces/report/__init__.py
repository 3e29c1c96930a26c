"""One page, one timeline and a few plots for what runs came to.

``gather`` reads traces in one pass each and keeps what fits a page however long they are; ``page`` makes the page out
of it, ``perfetto`` writes a timeline as the trace is read, and ``plots`` draws with matplotlib. None of them decides
anything about a run: figures are those of :mod:`coresident.traces.statistics`.
"""
