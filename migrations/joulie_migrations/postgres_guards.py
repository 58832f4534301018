"""The triggers and functions of a PostgreSQL database, and those that the migrations make.

PostgreSQL keeps the source of a function as it was given, and no statement of a trigger: its parts
are compared.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, text

from joulie_migrations import cuts, foreign_rows, guards, ledger_tables, tree_tables

_ORDER = (guards, foreign_rows, cuts, ledger_tables, tree_tables)  # that of the migration
_FUNCTION = re.compile(r"CREATE FUNCTION (\w+)\(.*\bAS \$\$(.*)\$\$", re.DOTALL)
_TRIGGER = re.compile(
    r"CREATE TRIGGER (\w+) BEFORE ([A-Z ]+) ON (\w+) FOR EACH (ROW|STATEMENT) "
    r"EXECUTE FUNCTION (\w+)\(\)"
)
_DROP = re.compile(r"DROP TRIGGER IF EXISTS (\w+) ON (\w+)")
_CHECK = re.compile(r"ALTER TABLE (\w+) ADD CONSTRAINT (\w+) CHECK (.*)")
_VERBS = {"INSERT": 4, "DELETE": 8, "UPDATE": 16, "TRUNCATE": 32}  # bits of pg_trigger.tgtype
_BEFORE, _ROW = 2, 1

_TRIGGERS = """
SELECT c.relname, t.tgname, p.proname, t.tgtype, t.tgqual IS NOT NULL
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
"""
_FUNCTIONS = """
SELECT proname, prosrc FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'joulie~_%' ESCAPE '~'
"""
_CHECKS = """
SELECT c.relname, k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'c' AND c.relnamespace = current_schema()::regnamespace
"""
_RULES = """
SELECT c.relname, r.rulename FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
"""


class Trigger(NamedTuple):
    function: str
    when: int  # pg_trigger.tgtype
    is_conditional: bool = False


class Guards(NamedTuple):
    functions: Mapping[str, str]  # the source of each
    triggers: Mapping[tuple[str, str], Trigger]  # by table and name
    checks: Mapping[tuple[str, str], str]


def migrated() -> Guards:
    functions, triggers, checks = dict[str, str](), dict[tuple[str, str], Trigger](), {}
    for statement in (each for guard in _ORDER for each in guard.statements("postgresql")):
        if found := _FUNCTION.search(statement):
            functions[found[1]] = found[2]
        elif found := _TRIGGER.search(statement):
            triggers[found[3], found[1]] = Trigger(found[5], _when(found[2], found[4]))
        elif found := _DROP.search(statement):
            triggers.pop((found[2], found[1]), None)
        elif found := _CHECK.search(statement):
            checks[found[1], found[2]] = _bare(found[3])
    return Guards(functions, triggers, checks)


def stored_in(db: Connection) -> Guards:
    triggers = {
        (table, name): Trigger(function, when, is_conditional)
        for table, name, function, when, is_conditional in db.execute(text(_TRIGGERS))
    }
    checks = {
        # NOT VALID: new rows are checked, and `joulie verify` checks the others itself.
        (table, name): _bare(check.removeprefix("CHECK ").removesuffix(" NOT VALID"))
        for table, name, check in db.execute(text(_CHECKS))
    }
    return Guards({name: source for name, source in db.execute(text(_FUNCTIONS))}, triggers, checks)


def rules_in(db: Connection) -> list[tuple[str, str]]:
    """Rules that rewrite statements on tables. No migration makes one."""
    return [(table, name) for table, name in db.execute(text(_RULES))]


def _when(verbs: str, each: str) -> int:
    return sum(_VERBS[verb] for verb in verbs.split(" OR ")) + _BEFORE + _ROW * (each == "ROW")


def _bare(expression: str) -> str:
    """PostgreSQL adds parentheses and spaces."""
    return re.sub(r"[\s()]", "", expression)
