"""What the demo says to its models: one long prompt, and messages that arrive meanwhile."""

from __future__ import annotations

PROMPT = """\
Read these notes and then explain to a new volunteer, in a few sentences, what the lighthouse does
and what to do first.

The lighthouse on the north cape was built in 1871 from grey granite. Its lamp stands forty metres
above the sea and can be seen from thirty kilometres away on a clear night. Until 1964 three keepers
and their families lived in the houses below the tower. They took turns: one trimmed the lamp, one
watched the weather, one slept. Since then the light has been automatic, and the houses belong to a
small museum that is open from May to September.

Volunteers open the museum at ten in the morning. They first check the batteries in the cellar,
because the pump that keeps the cellar dry runs on them. Then they wind the old clockwork, sweep the
stairs and put out the flag. Visitors may climb the tower in groups of eight. When the wind is
stronger than fifty kilometres an hour the gallery stays closed. The radio on the desk is for the
harbour office only. In fog the horn sounds twice a minute; warn visitors with small children before
it does.
"""

INSTRUCTION = "You sort incoming messages. Is the message urgent? Answer Yes or No."

MESSAGES = (
    ("URGENT: the payment failed and the customer is waiting on the phone.", "Your newsletter: ten autumn recipes."),
    ("Photos of the summer party are online.", "Production is down since 10:02, please join the call immediately."),
    ("Lunch menu for next week is attached.", "The server room is on fire, call me now!"),
    ("The cellar pump has stopped and the water is rising!", "A reminder: the book club meets in two weeks."),
)
