import inspect
import re
from collections.abc import Iterator

import pytest

from joulie_bus import errors
from joulie_bus.errors import JoulieError

EXAMPLES: list[JoulieError] = [
    errors.SettingsError(["LOG_LEVEL='loud' (from environment): unknown; allowed: one of info"]),
    errors.Unreachable("nats://nats:4222", "connection refused"),
    errors.ClientIncompatible("3.0.0", ">=2.16,<2.17", ["Client._transport"]),
    errors.BrokerRefused("joulie.tel.test.n1", 10077, "maximum bytes exceeded"),
    errors.ExpectationFailed({"joulie.plan.test._meta": 7}, "wrong last sequence: 9"),
    errors.Undecodable("JOULIE_OBS 7", "this version of Joulie has no event type 'node.lost'"),
    errors.OutOfBounds("pod.bound", "Expected `int` <= 1000000000 - at `$.pod.cpu_milli`"),
    errors.StreamGap("JOULIE_OBS", 7, 9),
    errors.KeyOfAnotherLog("data/head.key", "ed25519-a", "ed25519-b"),
    errors.DatabaseUrlRefused("invalid port"),
    errors.DatabasePromoted(7),
    errors.DatabaseSetBack("position", 7, 9),
    errors.CopyDiffers("the table decision"),
    errors.NotMoved("There is no /data/joulie.db."),
    errors.NotWritten("--out=/nope/x", "No such file or directory"),
    errors.NotRead("/nope/x", "No such file or directory"),
    errors.QueryNotRun("It is not one SELECT.", "Give one SELECT."),
    errors.QueryRefused("32 queries run or wait"),
    errors.AgedOut("JOULIE_OBS", 3, 9),
    errors.NeverArchived("/archive", 3, 9),
    errors.NotArchived("/archive/part-7", "No space left on device"),
    errors.PassedOver("message 9 of JOULIE_TEL is in no manifest", "Nothing was rebuilt."),
    errors.StreamSilent("JOULIE_HEADS", 3, 9, 30.0),
    errors.StreamsMissing("nats://nats:4222", ["JOULIE_OBS"]),
    errors.StreamsForeign("nats://nats:4222", "JOULIE_TEL", ["joulie.tel.x.*"], ["joulie.tel.y.*"]),
    errors.StreamReplaced("JOULIE_OBS", "sequence 7", "sequence 3"),
    errors.BrokerStartFailed("nats://127.0.0.1:4222", "address already in use", "nats.log"),
    errors.SchemaMismatch("0001", "0002"),
    errors.MigrationDenied("permission denied to create role"),
    errors.NotOursToMigrate(),
    errors.DatabaseUnreachable("postgresql://extender@db/joulie", "connection refused"),
    errors.StateDamaged("The snapshot", 700),
    errors.CountedByAnotherRule(2, 1),
    errors.KeyMismatch("head.key", "ed25519", "x25519"),
    errors.KeyRingBroken("head.pub", "the handover at entry 7 is not signed by both keys"),
    errors.KeyChangeRefused("Key abc signs now. Nothing was changed. Rotate first."),
    errors.NotRetryable("Nothing lies in quarantine at position 7. Nothing was done."),
    errors.Unreadable("/data/joulie.db", "disk I/O error"),
    errors.Unwritable("commit", "DataError: text fields cannot contain NUL bytes"),
    errors.ProjectorRuns(10.0),
    errors.StreamsInUse("nats://127.0.0.1:4222", {"JOULIE_TEL": "messages 1 to 5"}),
    errors.StreamsDiffer("nats://127.0.0.1:4222", {"JOULIE_DEC": "it ends at 3, and 7 was read"}),
    errors.ConsoleNotReached("http://127.0.0.1:9880", "connection refused"),
    errors.ConsoleRefused("http://127.0.0.1:9880", "/v1/nodes/n9", 404, "No node 'n9'"),
    errors.Fenced(3, 700),
    errors.LedgerFenced(700),
    errors.RecordDamaged("Expected `object`, got `int`"),
    errors.LedgerDamaged(),
    errors.TooFarBack(7, "the facts of that time are gone."),
    errors.ViewBehind(5, 7, 2.0),
    errors.PortTaken("127.0.0.1:9876", "address already in use"),
    errors.DiskFull("/data", "3 MiB are free"),
    errors.BadKubeconfig("KUBECONFIG='/etc/none': there is no such file"),
    errors.KubernetesRefused("/api/v1/nodes", 403, "nodes is forbidden"),
    errors.BucketFailed("https://s3/heads/", "the server answered 403 AccessDenied"),
    errors.HeadsNotKept("file:/mnt/heads.jsonl", "it holds no head"),
    errors.ConsoleUnavailable("joulie-system", "HTTP 403.", "Ask for the role joulie-viewer."),
    errors.SwitchFailed("POST https://bmc-7/redfish/v1/Systems/1 returned 503"),
    errors.WrongTarget("`joulie target set` needs --watts and --to. Nothing was set."),
    errors.AlreadyMoving("n1", "2026-11-28T12:00:00Z"),
    errors.LeaseHeld("joulie-operator", "joulie-system", 30.0),
    errors.PolicyFailed("acme", "ZeroDivisionError: division by zero"),
    errors.BadTrace("pods.csv, line 3", "there is no column qos"),
    errors.BadRequest("$.pod: expected an object. The request was not answered."),
    errors.BadQuantity("1Zi", "$.pod.spec.containers[0]"),
    errors.BadName("PodName", "../x", "a DNS subdomain name (RFC 1123)"),
    errors.BadAnnotation("joulie.io/gpu-share", "half", "a share, such as 0.25"),
    errors.BadCatalog("catalog.toml", ["cpu number 1: no source"]),
    errors.DataDirectoryError("/data holds no database. Start `joulie up` there first."),
    errors.NotInTheLog("There is no entry 12: the log goes from 1 to 11. Nothing was proved."),
    errors.NotAnswered(404, "No node 'n9' at position 5. Nothing was read."),
    errors.NotTrimmed("/archive and the database differ at entry 7. Nothing was deleted."),
    errors.NotTried("a node of the list cannot be read: it is cut off"),
    errors.NotCompared("The run failed: the address is in use. Nothing was compared."),
    errors.ArchiveBroken("/archive/facts.seg", "its SHA-256 does not match"),
]


def children(cls: type[JoulieError]) -> Iterator[str]:
    """Every class below, each as a line of its depth and name."""
    for child in cls.__subclasses__():
        yield child.__name__
        yield from children(child)


def drawn() -> dict[str, str]:
    """Name and parent of each class in the tree at the top of the module."""
    found, path = {"JoulieError": "Exception"}, ["JoulieError"]
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r" {4}([│ ]*)[├└]── (\w+)", line):
            depth = len(match[1]) // 4 + 1
            path[depth:] = [match[2]]
            found[match[2]] = path[depth - 1]
    return found


def test_the_drawn_tree_is_the_real_one() -> None:
    real = {
        name: cls.__base__.__name__
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, JoulieError) and cls.__base__ is not None
    }

    assert drawn() == real


def test_the_examples_cover_every_error_that_is_raised() -> None:
    leaves = set(children(JoulieError)) - {"BusError", "StoreError", "NotStarted"}

    assert {type(error).__name__ for error in EXAMPLES} >= leaves


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_message_says_what_was_wrong_and_then_what_follows_from_it(error: JoulieError) -> None:
    sentences = re.split(r"(?<=[.?:)])\s+(?=[A-Z`-])", str(error))

    assert len(sentences) > 1
    assert sentences[-1].startswith("- ") or sentences[-1][-1] in ".?"


def test_a_refused_request_is_not_reported_as_an_event_that_was_not_stored() -> None:
    asked = errors.BrokerRefused("$JS.API.STREAM.INFO.JOULIE_TEL", 10008, "no leader")
    published = errors.BrokerRefused("joulie.tel.test.n1", 10077, "maximum bytes exceeded")

    assert str(asked).endswith("(code 10008). The request had no effect.")
    assert str(published).endswith("(code 10077). Nothing was stored.")
