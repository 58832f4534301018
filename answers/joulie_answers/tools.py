"""The questions as tools of a language model: one for each route that both a console and the local
data answer.

Not here: a protocol. A tool only reads; names of pods and nodes in its answers are data.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from joulie_answers.schema import routes
from joulie_answers.schema.responses import Answer
from joulie_answers.schema.routes import Route
from joulie_answers.text.decisions import decisions_text
from joulie_answers.text.energy import energy_text
from joulie_answers.text.gpus import gpus_text
from joulie_answers.text.nodes import node_text, nodes_text
from joulie_answers.text.place import place_text
from joulie_answers.text.plans import next_plan_text, plan_text, plans_text
from joulie_answers.text.pod import pod_text
from joulie_answers.text.requests import requests_text
from joulie_answers.text.status import status_text
from joulie_bus.errors import NotAnswered

LONGEST_TEXT = 50_000  # characters
LISTED = 20  # items, where a call names no limit
SHOWN = 20  # rows of the text of a plan
_CUT = "\n... cut here. Ask for less: give a filter, or a smaller `limit`."


class Called(NamedTuple):
    text: str
    document: Any  # the answer as JSON has it; None if it is too long


class Tool(NamedTuple):
    route: Route[Any, Any]
    answers: str  # the questions that it answers, in words that need no knowledge of Joulie

    @property
    def name(self) -> str:
        return self.route.name

    def described(self) -> dict[str, Any]:
        [ref], components = msgspec.json.schema_components([self.route.query_type])
        schema = components[ref["$ref"].rpartition("/")[2]]
        properties = dict(schema.get("properties", {}))
        required = list[str]()
        if self.route.path_parameter is not None:
            name, of_path = self.route.path_parameter
            properties, required = {name: of_path, **properties}, [name]
        return {
            "name": self.name,
            "title": self.route.summary,
            "description": self.answers,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
                **({"$defs": components} if "$ref" in str(properties) else {}),
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }

    async def called(self, source: Any, arguments: Mapping[str, Any]) -> Called:
        """Raises JoulieError."""
        path, query = self._parsed(dict(arguments))
        found: Answer = await getattr(source, self.name)(*path, query)
        text = f"As of position {found.position} of the facts.\n\n{_text(self.name, found)}"
        if len(text) > LONGEST_TEXT:
            return Called(text[:LONGEST_TEXT] + _CUT, None)
        document = msgspec.to_builtins(found)
        is_short = len(msgspec.json.encode(document)) <= 2 * LONGEST_TEXT
        return Called(text, document if is_short else None)

    def _parsed(self, arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        path = list[Any]()
        if self.route.path_parameter is not None:
            name, schema = self.route.path_parameter
            kind = int if schema["type"] == "integer" else str
            path.append(_as(kind, arguments.pop(name, None), name))
        query_type = self.route.query_type
        if "limit" in query_type.__struct_fields__:
            arguments.setdefault("limit", LISTED)
        return path, _as(query_type, arguments, self.name)


def _as(kind: Any, value: object, name: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise NotAnswered(400, f"{name}: {error}. Nothing was read.") from error


def _text(name: str, found: Any) -> str:
    if name in _TEXTS:
        return _TEXTS[name](found)
    return msgspec.json.format(msgspec.json.encode(found)).decode()


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "pod": pod_text,
    "node": node_text,
    "nodes": nodes_text,
    "gpus": gpus_text,
    "decisions": lambda found: decisions_text(found.items),
    "plan": plan_text,
    "plans": lambda found: plans_text(found, ""),
    "next_plan": lambda found: next_plan_text(found, SHOWN),
    "energy": energy_text,
    "workload_requests": requests_text,
    "place": place_text,
    "status": status_text,
}

TOOLS = (
    Tool(
        routes.POD,
        "Why is this pod on its node? Why is it pending, and what would help? Each attempt with "
        "its candidates, scores, terms and entries of the log. Give namespace/name or the UID.",
    ),
    Tool(
        routes.PENDING,
        "Which pods wait, for how long, and for which reason? What would let them run?",
    ),
    Tool(
        routes.PODS,
        "Which pods run, wait or have ended? On which node, and of which class?",
    ),
    Tool(
        routes.NODE,
        "What is known of this node: class, caps, power, pods, cards? Why is it awake or asleep, "
        "and which plan changed it when?",
    ),
    Tool(
        routes.NODES,
        "Which nodes are there, with class, power, trend and free room? Which draws most?",
    ),
    Tool(
        routes.GPUS,
        "Which GPU cards are there? Which pods hold them, which are free, which are idle?",
    ),
    Tool(
        routes.PLANS,
        "What did the operator plan, when and why? What changed on a node?",
    ),
    Tool(routes.PLAN, "What is in this plan, and what was it computed from?"),
    Tool(
        routes.NEXT_PLAN,
        "What would the operator plan next, if nothing else happens? Which node sleeps or wakes "
        "next, and why?",
    ),
    Tool(
        routes.DEFRAGMENT,
        "Which pods could move so that free GPUs are of use to pods that ask for GPUs?",
    ),
    Tool(
        routes.PLACE,
        "What would happen if these objects were submitted? Where would their pods be placed, and "
        "with which cards? Which would wait, why, and what would fit? Give a manifest as YAML.",
    ),
    Tool(
        routes.DECISIONS,
        "What was decided of a pod, a namespace or a node, newest first? Each is an entry of the "
        "log with a number.",
    ),
    Tool(
        routes.DECISION,
        "What is in this entry of the log: candidates, scores and terms of a decision?",
    ),
    Tool(
        routes.ENERGY,
        "How much energy was used, by namespace, workload, node, pod, card or plan? What is idle "
        "power, and what does it cost?",
    ),
    Tool(routes.SAVED, "What was saved today and this month, against which baseline?"),
    Tool(
        routes.WORKLOAD_REQUESTS,
        "Which workloads request far more than they use? What could be requested instead, and "
        "what would it free?",
    ),
    Tool(
        routes.STATUS,
        "Is everything well? What runs, how old is the data, and what is wrong?",
    ),
    Tool(
        routes.HEADS,
        "Which heads of the log were signed? An entry up to a head can be proved by "
        "`joulie prove ENTRY`.",
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
