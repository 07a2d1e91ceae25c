"""Every way of asking wrongly that the clustering API's own conformance suite knows, and the sentence that answers it.

In paths, bodies and sentences, `{name}` stands for the id of something that the test has made under that name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ABSENT = "5e0a8c1d-9a3e-4c1b-8f0e-000000000000"
"""An id that nothing has."""


@dataclass(frozen=True)
class Case:
    """A request, and what it is answered."""

    name: str
    method: str
    path: str
    status: int
    message: str
    body: Any = None
    version: str = "1.14"


def _lists() -> Iterator[Case]:
    """What is wrong in the same way for all lists."""
    for noun in ("profiles", "policies", "clusters", "nodes", "actions", "receivers", "events"):
        unknown = "'bogus'" if noun == "clusters" else "bogus"
        for name, query, status, message in (
            ("invalid_params", "bogus=foo", 400, f"Invalid parameter {unknown}"),
            ("limit_not_int", "limit=not-int", 400, "The value for limit must be an integer: 'not-int'."),
            ("limit_negative", "limit=-5", 400, "Value must be >= 0 for field 'limit'."),
            ("global_project_false", "global_project=True", 403, "You are not authorized to complete this operation."),
            (
                "global_project_not_bool",
                "global_project=not-bool",
                400,
                "Invalid value 'not-bool' specified for 'global_project'",
            ),
            ("invalid_sort", "sort=bad-sort", 400, "Unsupported sort key 'bad-sort' for 'sort'."),
            ("invalid_sort_dir", "sort=name:up", 400, "Unsupported sort dir 'up' for 'sort'."),
            ("missing_sort_key", "sort=,name", 400, "Missing sort key for 'sort'."),
            ("invalid_marker", "marker=bad-marker", 400, "The value for marker is not a valid UUID: 'bad-marker'."),
        ):
            if noun == "events" and name == "invalid_sort_dir":
                query = "sort=timestamp:up"
            yield Case(f"{noun}_list_{name}", "GET", f"/{noun}?{query}", status, message)
    bad = "%5B%27bad%27%5D"
    for noun, key in (("clusters", "status"), ("nodes", "status"), ("events", "level"), ("events", "action")):
        yield Case(f"{noun}_list_bad_{key}", "GET", f"/{noun}?{key}={bad}", 400, "Field value ['bad'] is invalid")
    yield Case(
        "node_list_cluster_not_found", "GET", "/nodes?cluster_id=fake", 400, "Cannot find the given cluster: fake."
    )


def _unknown() -> Iterator[Case]:
    """What is not there, and what is there twice."""
    for plural, noun, change in (
        ("profiles", "profile", {"profile": {"name": "new-name"}}),
        ("policies", "policy", {"policy": {"name": "new-name"}}),
        ("clusters", "cluster", {"cluster": {"name": "new-name"}}),
        ("nodes", "node", {"node": {"name": "new-name"}}),
        ("receivers", "receiver", {"receiver": {"name": "new-name"}}),
    ):
        missing = f"The {noun} '{ABSENT}' could not be found."
        twice = "Multiple results found matching the query criteria 'twice'. Please be more specific."
        yield Case(f"{noun}_show_not_found", "GET", f"/{plural}/{ABSENT}", 404, missing)
        yield Case(f"{noun}_delete_not_found", "DELETE", f"/{plural}/{ABSENT}", 404, missing)
        yield Case(f"{noun}_update_not_found", "PATCH", f"/{plural}/{ABSENT}", 404, missing, change)
        yield Case(f"{noun}_show_multiple_choice", "GET", f"/{plural}/twice", 400, twice)
        yield Case(f"{noun}_delete_multiple_choice", "DELETE", f"/{plural}/twice", 400, twice)
        empty = f"Malformed request data, missing '{noun}' key in request body."
        yield Case(f"{noun}_update_empty_param", "PATCH", f"/{plural}/{ABSENT}", 400, empty, {})
        yield Case(f"{noun}_create_empty_body", "POST", f"/{plural}", 400, f"Request body missing '{noun}' key.", {})
        yield Case(f"{noun}_create_no_body", "POST", f"/{plural}", 400, f"Request body missing '{noun}' key.")
        more = "Additional properties are not allowed ('bogus' was unexpected)"
        yield Case(f"{noun}_create_invalid_param", "POST", f"/{plural}", 400, more, {noun: {"bogus": "foo"}})
        yield Case(f"{noun}_update_invalid_param", "PATCH", f"/{plural}/{ABSENT}", 400, more, {noun: {"bogus": "foo"}})
    for plural, noun in (("actions", "action"), ("events", "event")):
        yield Case(
            f"{noun}_show_not_found", "GET", f"/{plural}/{ABSENT}", 404, f"The {noun} '{ABSENT}' could not be found."
        )
    for plural, noun in (("policy-types", "policy_type"), ("profile-types", "profile_type")):
        yield Case(
            f"{noun}_show_not_found", "GET", f"/{plural}/{ABSENT}", 404, f"The {noun} '{ABSENT}' could not be found."
        )
    yield Case("cluster_show_by_name_not_found", "GET", "/clusters/c-01", 404, "The cluster 'c-01' could not be found.")


def _names() -> Iterator[Case]:
    for plural, noun in (("profiles", "profile"), ("clusters", "cluster"), ("nodes", "node")):
        for name, given, sentence in (
            ("empty", "", "The value for the name field must be at least 1 characters long."),
            ("long", "z" * 256, "The value for the name field must be less than 255 characters long."),
            (
                "illegal",
                "p 1",
                "The value for the 'name' (p 1) contains illegal characters. It must contain only alphanumeric or "
                '"_-.~" characters and must start with letter.',
            ),
        ):
            more: dict[str, Any] = {"spec": {}} if noun == "profile" else {"profile_id": "{profile}"}
            yield Case(f"{noun}_name_{name}", "POST", f"/{plural}", 400, sentence, {noun: {"name": given, **more}})


def _specs() -> Iterator[Case]:
    """Profiles and policies."""
    nova: dict[str, Any] = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1"}}
    deletion: dict[str, Any] = {
        "type": "senlin.policy.deletion",
        "version": "1.1",
        "properties": {"criteria": "OLDEST_FIRST"},
    }
    for plural, noun, spec, prefix in (
        ("profiles", "profile", nova, "Failed in creating profile x: "),
        ("policies", "policy", deletion, ""),
    ):
        kind = spec["type"].replace("os.nova.server", "senlin.profile").rpartition(".")[0] + ".bogus"
        unknown = f"The {noun}_type '{kind}-1.0' could not be found."
        wrong_type = {**spec, "type": kind, "version": "1.0"}
        wrong_item = {**spec, "properties": {**spec["properties"], "bogus": "foo"}}
        item = "Unrecognizable spec item 'bogus'"
        lacks_spec, lacks_name = "'spec' is a required property", "'name' is a required property"
        yield Case(f"{noun}_create_spec_not_specified", "POST", f"/{plural}", 400, lacks_spec, {noun: {"name": "x"}})
        yield Case(f"{noun}_create_name_not_specified", "POST", f"/{plural}", 400, lacks_name, {noun: {"spec": spec}})
        for name, given, status, sentence in (
            ("type_incorrect", wrong_type, 404, unknown),
            ("spec_validation_failed", wrong_item, 400, prefix + item),
            ("spec_no_type", {"version": "1.0"}, 400, prefix + "The 'type' key is missing from the provided spec map."),
            (
                "spec_no_version",
                {"type": "x"},
                400,
                prefix + "The 'version' key is missing from the provided spec map.",
            ),
        ):
            body = {noun: {"name": "x", "spec": given}}
            yield Case(f"{noun}_create_{name}", "POST", f"/{plural}", status, sentence, body)
        missing = f"Request body missing '{noun}' key."
        yield Case(f"{noun}_validate_empty_body", "POST", f"/{plural}/validate", 400, missing, {})
        yield Case(f"{noun}_validate_no_spec", "POST", f"/{plural}/validate", 400, lacks_spec, {noun: {}})
        for name, given, status, sentence in (
            ("type_incorrect", wrong_type, 404, unknown),
            ("spec_validation_failed", wrong_item, 400, item),
        ):
            yield Case(
                f"{noun}_validate_{name}", "POST", f"/{plural}/validate", status, sentence, {noun: {"spec": given}}
            )
        old = "API version '1.1' is not supported on this method."
        yield Case(f"{noun}_validate_version", "POST", f"/{plural}/validate", 400, old, {noun: {}}, "1.1")
        extra = "Additional properties are not allowed ('spec' was unexpected)"
        body = {noun: {"name": "y", "spec": spec}}
        yield Case(f"{noun}_update_spec_not_updatable", "PATCH", f"/{plural}/{{{noun}}}", 400, extra, body)
    same = "No property needs an update."
    yield Case("profile_update_no_property", "PATCH", "/profiles/{profile}", 400, same, {"profile": {}})
    named = "'name' is a required property"
    yield Case("policy_update_no_property", "PATCH", "/policies/{policy}", 400, named, {"policy": {}})
    used = "The profile '{profile}' cannot be deleted: still referenced by some clusters and/or nodes."
    yield Case("profile_delete_conflict", "DELETE", "/profiles/{profile}", 409, used)
    bound = "The policy '{attached}' cannot be deleted: still attached to some clusters."
    yield Case("policy_delete_conflict", "DELETE", "/policies/{attached}", 409, bound)


def _receivers() -> Iterator[Case]:
    good = {"name": "r", "type": "webhook", "cluster_id": "{cluster}", "action": "CLUSTER_SCALE_IN"}
    for name, change, sentence in (
        ("unsupported_type", {"type": "bogus"}, "Value 'bogus' is not acceptable for field 'type'."),
        ("cluster_not_found", {"cluster_id": ABSENT}, f"The referenced cluster '{ABSENT}' could not be found."),
        ("invalid_action", {"action": "ILLEGAL_ACTION"}, "Illegal action 'ILLEGAL_ACTION' specified."),
        ("create_cluster", {"action": "CLUSTER_CREATE"}, "Illegal action 'CLUSTER_CREATE' specified."),
        ("no_cluster", {"cluster_id": None}, "Cluster identity is required for creating webhook receiver."),
        ("no_action", {"action": None}, "Action name is required for creating webhook receiver."),
        (
            "cluster_twice",
            {"cluster_id": "twice"},
            "Multiple results found matching the query criteria 'twice'. Please be more specific.",
        ),
        ("name_length", {"name": "z" * 256}, "The value for the name field must be less than 255 characters long."),
    ):
        yield Case(f"receiver_create_{name}", "POST", "/receivers", 400, sentence, {"receiver": {**good, **change}})
    yield Case(
        "receiver_notify_webhook",
        "POST",
        "/receivers/{receiver}/notify",
        400,
        "Notifying non-message receiver is not allowed.",
    )
    yield Case("webhook_no_version", "POST", "/webhooks/{receiver}/trigger", 400,
               "V query parameter is required in webhook trigger URL")  # fmt: skip
    yield Case("webhook_without_secret", "POST", "/webhooks/{receiver}/trigger?V=2", 404,
               "The receiver '{receiver}' could not be found.")  # fmt: skip


def _other_profiles(thing: str) -> list[tuple[str, dict[str, Any], str]]:
    return [
        ("profile_not_found", {"profile_id": ABSENT}, f"The specified profile '{ABSENT}' could not be found."),
        (
            "profile_multichoices",
            {"profile_id": "twice"},
            "Multiple results found matching the query criteria 'twice'. Please be more specific.",
        ),
        (
            "profile_type_unmatch",
            {"profile_id": "{heat}"},
            f"Cannot update a {thing} to a different profile type, operation aborted.",
        ),
        ("no_property_updated", {"profile_id": "{profile}"}, "No property needs an update."),
    ]


def _nodes() -> Iterator[Case]:
    new = {"name": "n", "profile_id": "{profile}"}
    for name, change, sentence in (
        ("profile_invalid", {"profile_id": ABSENT}, f"The specified profile '{ABSENT}' could not be found."),
        ("cluster_invalid", {"cluster_id": ABSENT}, f"The specified cluster '{ABSENT}' could not be found."),
        (
            "cluster_twice",
            {"cluster_id": "twice"},
            "Multiple results found matching the query criteria 'twice'. Please be more specific.",
        ),
        (
            "profile_type_unmatch",
            {"profile_id": "{heat}", "cluster_id": "{cluster}"},
            "Node and cluster have different profile type, operation aborted.",
        ),
        ("miss_name", {"name": None}, "'name' is a required property"),
        ("miss_profile", {"profile_id": None}, "'profile_id' is a required property"),
        (
            "full_cluster",
            {"cluster_id": "{full}"},
            "The target capacity (2) is greater than the cluster's max_size (1).",
        ),
    ):
        yield Case(f"node_create_{name}", "POST", "/nodes", 400, sentence, {"node": {**new, **change}})
    for name, change, sentence in (
        *_other_profiles("node"),
        ("nulls_are_nothing", {"name": None, "role": None}, "No property needs an update."),
    ):
        yield Case(f"node_update_{name}", "PATCH", "/nodes/{orphan}", 400, sentence, {"node": change})
    for name, body, sentence in (
        ("no_action_specified", {}, "No action specified."),
        ("multiple_action_specified", {"check": {}, "recover": {}}, "Multiple actions specified."),
        ("unrecognized_action", {"bogus": {}}, "Unrecognized action 'bogus' specified"),
        ("check_not_map", {"check": []}, "The params provided is not a map."),
        ("recover_not_map", {"recover": "x"}, "The params provided is not a map."),
        ("recover_unknown", {"recover": {"zz": 1}}, "Action parameter ['zz'] is not recognizable."),
        (
            "recover_operation",
            {"recover": {"operation": "bogus"}},
            "Operation value 'bogus' has to be one of the following: REBOOT, REBUILD, RECREATE.",
        ),
    ):
        yield Case(f"node_{name}", "POST", "/nodes/{orphan}/actions", 400, sentence, body)
    for action in ("check", "recover"):
        missing = f"The node '{ABSENT}' could not be found."
        yield Case(f"node_{action}_not_found", "POST", f"/nodes/{ABSENT}/actions", 404, missing, {action: {}})
    old = "API version '1.3' is not supported on this method."
    yield Case("node_op_bad_microversion", "POST", "/nodes/FAKE_ID/ops", 400, old, {"dance": {}}, "1.3")
    for name, body, sentence in (
        ("no_operation", {}, "No operation specified."),
        ("multiple_ops", {"dance": {}, "sleep": {}}, "Multiple operations specified."),
        (
            "not_supported",
            {"dance": {}},
            "The requested operation 'dance' is not supported by the profile type 'os.nova.server-1.0'.",
        ),
        ("bad_params", {"reboot": {"type": "Unknown"}}, "'Unknown' must be one of the allowed values: SOFT, HARD."),
        ("unknown_params", {"reboot": {"q": 1}}, "Unrecognizable parameter 'q'"),
    ):
        yield Case(f"node_op_{name}", "POST", "/nodes/{orphan}/ops", 400, sentence, body, "1.4")
    missing = f"The node '{ABSENT}' could not be found."
    yield Case("node_op_not_found", "POST", f"/nodes/{ABSENT}/ops", 404, missing, {"reboot": {}}, "1.4")
    adopt = "API version '1.6' is not supported on this method."
    yield Case("node_adopt_version", "POST", "/nodes/adopt", 400, adopt, {}, "1.6")
    lacks = "'identity' is a required property"
    yield Case("node_adopt_no_identity", "POST", "/nodes/adopt", 400, lacks, {"type": "os.nova.server-1.0"})
    gone = f"The specified server '{ABSENT}' could not be found."
    body = {"identity": ABSENT, "type": "os.nova.server-1.0"}
    yield Case("node_adopt_nothing", "POST", "/nodes/adopt", 400, gone, body)


def _clusters() -> Iterator[Case]:
    new = {"name": "c", "profile_id": "{profile}"}
    for name, change, sentence in (
        ("profile_invalid", {"profile_id": ABSENT}, f"The specified profile '{ABSENT}' could not be found."),
        ("miss_profile", {"profile_id": None}, "'profile_id' is a required property"),
        ("miss_name", {"name": None}, "'name' is a required property"),
        (
            "size_constraint",
            {"desired_capacity": 2, "min_size": 5},
            "The target capacity (2) is less than the specified min_size (5).",
        ),
        (
            "above_max",
            {"desired_capacity": 6, "max_size": 5},
            "The target capacity (6) is greater than the specified max_size (5).",
        ),
        (
            "min_over_max",
            {"desired_capacity": 6, "min_size": 6, "max_size": 4},
            "The target capacity (6) is greater than the specified max_size (4).",
        ),
        (
            "too_many",
            {"desired_capacity": 1001},
            "The target capacity (1001) is greater than the maximum number of nodes allowed per cluster (1000).",
        ),
        ("size_not_int", {"min_size": "many"}, "The value for min_size must be an integer: 'many'."),
        ("size_negative", {"min_size": -1}, "Value must be >= 0 for field 'min_size'."),
    ):
        yield Case(f"cluster_create_{name}", "POST", "/clusters", 400, sentence, {"cluster": {**new, **change}})
    for name, change, sentence in _other_profiles("cluster"):
        yield Case(f"cluster_update_{name}", "PATCH", "/clusters/{cluster}", 400, sentence, {"cluster": change})
    yield from _cluster_actions()
    old = "API version '1.1' is not supported on this method."
    yield Case("cluster_collect_version", "GET", "/clusters/{cluster}/attrs/name", 400, old, version="1.1")
    lacks = "Required path attribute is missing."
    yield Case("cluster_collect_no_path", "GET", "/clusters/{cluster}/attrs", 400, lacks)
    yield Case("cluster_collect_none", "GET", "/clusters/{cluster}/attrs/None", 400, lacks, version="1.2")
    missing = f"The cluster '{ABSENT}' could not be found."
    yield Case("cluster_collect_not_found", "GET", f"/clusters/{ABSENT}/attrs/name", 404, missing)
    yield Case("cluster_op_version", "POST", "/clusters/{cluster}/ops", 400,
               "API version '1.3' is not supported on this method.", {"reboot": {}}, "1.3")  # fmt: skip
    for name, body, sentence in (
        (
            "unsupported",
            {"zing": {}},
            "The requested operation 'zing' is not supported by the profile type 'os.nova.server-1.0'.",
        ),
        ("params", {"reboot": {"params": {"q": 1}}}, "Unrecognizable parameter 'q'"),
        ("filter", {"stop": {"filters": {"zzz": 1}}}, "Filter key 'zzz' is unsupported"),
        ("no_node", {"stop": {"filters": {"role": "none"}}}, "No node (matching the filter) could be found"),
    ):
        yield Case(f"cluster_op_{name}", "POST", "/clusters/{cluster}/ops", 400, sentence, body)


_UNIQUE = "Items for 'nodes' must be unique"
_AT_LEAST = "Value for 'nodes' must have at least 1 item(s)."
_NOT_BOOL = (
    "Unrecognized value 'not-bool', acceptable values are: "
    "'0', '1', 'f', 'false', 'n', 'no', 'off', 'on', 't', 'true', 'y', 'yes'"
)
_PERCENT = "CHANGE_IN_PERCENTAGE"


def _cluster_actions() -> Iterator[Case]:
    """Those on a cluster of three nodes, between two and five."""
    actions: list[tuple[str, Any, str]] = [
        ("no_action_specified", {}, "No action specified"),
        ("multiple_action_specified", {"check": {}, "recover": {}}, "Multiple actions specified"),
        ("unrecognized_action", {"bogus": {}}, "Unrecognized action 'bogus' specified"),
        ("add_nodes_missing", {"add_nodes": {}}, _AT_LEAST),
        ("add_nodes_text", {"add_nodes": {"nodes": "nodes-twice-s"}}, _UNIQUE),
        ("add_nodes_empty", {"add_nodes": {"nodes": []}}, _AT_LEAST),
        ("add_nodes_same", {"add_nodes": {"nodes": ["n", "n"]}}, _UNIQUE),
        ("add_nodes_not_found", {"add_nodes": {"nodes": [ABSENT]}}, f"Nodes not found: ['{ABSENT}']."),
        (
            "add_nodes_not_orphan",
            {"add_nodes": {"nodes": ["{member}"]}},
            "Nodes ['{member}'] already owned by some cluster.",
        ),
        ("del_nodes_missing", {"del_nodes": {}}, _AT_LEAST),
        ("del_nodes_text", {"del_nodes": {"nodes": "nodes-twice-s"}}, _UNIQUE),
        ("del_nodes_empty", {"del_nodes": {"nodes": []}}, _AT_LEAST),
        ("del_nodes_destroy", {"del_nodes": {"nodes": ["n"], "destroy_after_deletion": "not-bool"}}, _NOT_BOOL),
        ("del_nodes_not_found", {"del_nodes": {"nodes": [ABSENT]}}, f"Nodes not found: ['{ABSENT}']."),
        (
            "del_nodes_orphan",
            {"del_nodes": {"nodes": ["{orphan}"]}},
            "Nodes not members of specified cluster: ['{orphan}'].",
        ),
        (
            "del_nodes_other_cluster",
            {"del_nodes": {"nodes": ["{only}"]}},
            "Nodes not members of specified cluster: ['{only}'].",
        ),
        ("check_not_dict", {"check": []}, "The data provided is not a map"),
        ("recover_not_dict", {"recover": []}, "The data provided is not a map"),
        ("recover_unknown", {"recover": {"zz": 1}}, "Action parameter ['zz'] is not recognizable."),
        ("attach_not_dict", {"policy_attach": []}, "The data provided is not a map"),
        ("attach_missing", {"policy_attach": {}}, "'policy_id' is a required property"),
        ("attach_enabled", {"policy_attach": {"policy_id": "x", "enabled": "not-bool"}}, _NOT_BOOL),
        (
            "attach_additional",
            {"policy_attach": {"policy_id": "x", "zz": 1}},
            "Additional properties are not allowed ('zz' was unexpected)",
        ),
        (
            "attach_not_found",
            {"policy_attach": {"policy_id": ABSENT}},
            f"The specified policy '{ABSENT}' could not be found.",
        ),
        ("detach_not_dict", {"policy_detach": []}, "The data provided is not a map"),
        ("detach_missing", {"policy_detach": {}}, "'policy_id' is a required property"),
        (
            "detach_not_found",
            {"policy_detach": {"policy_id": ABSENT}},
            f"The specified policy '{ABSENT}' could not be found.",
        ),
        (
            "detach_unattached",
            {"policy_detach": {"policy_id": "{policy}"}},
            "The policy '{policy}' is not attached to the specified cluster '{cluster}'.",
        ),
        ("update_not_dict", {"policy_update": []}, "The data provided is not a map"),
        ("update_missing", {"policy_update": {}}, "'policy_id' is a required property"),
        ("update_enabled", {"policy_update": {"policy_id": "x", "enabled": "not-bool"}}, _NOT_BOOL),
        (
            "update_not_found",
            {"policy_update": {"policy_id": ABSENT}},
            f"The specified policy '{ABSENT}' could not be found.",
        ),
        (
            "update_unattached",
            {"policy_update": {"policy_id": "{policy}"}},
            "The policy '{policy}' is not attached to the specified cluster '{cluster}'.",
        ),
        ("replace_not_map", {"replace_nodes": {"nodes": []}}, "The data provided is not a map"),
        ("replace_empty", {"replace_nodes": {"nodes": {}}}, "The data provided is not a map"),
        ("replace_none", {"replace_nodes": {"nodes": {"old_node": None}}}, "Field `nodes[old_node]' cannot be None"),
        ("replace_duplicated", {"replace_nodes": {"nodes": {"a": "n", "b": "n"}}}, "Map contains duplicated values"),
        ("replace_old", {"replace_nodes": {"nodes": {ABSENT: "{orphan}"}}}, f"Original nodes not found: ['{ABSENT}']."),
        (
            "replace_new",
            {"replace_nodes": {"nodes": {"{member}": ABSENT}}},
            f"Replacement nodes not found: ['{ABSENT}'].",
        ),
        (
            "replace_not_orphan",
            {"replace_nodes": {"nodes": {"{member}": "{only}"}}},
            "Nodes ['{only}'] already member of a cluster.",
        ),
        (
            "replace_old_orphan",
            {"replace_nodes": {"nodes": {"{orphan}": "{other}"}}},
            "The specified nodes ['{orphan}'] to be replaced are not members of the cluster {cluster}.",
        ),
        (
            "scale_in_not_int",
            {"scale_in": {"count": "bad-count"}},
            "The value for count must be an integer: 'bad-count'.",
        ),
        ("scale_in_negative", {"scale_in": {"count": -1}}, "Value must be >= 0 for field 'count'."),
        ("scale_in_zero", {"scale_in": {"count": 0}}, "Count for scale-in request cannot be 0."),
        (
            "scale_out_not_int",
            {"scale_out": {"count": "bad-count"}},
            "The value for count must be an integer: 'bad-count'.",
        ),
        ("scale_out_negative", {"scale_out": {"count": -1}}, "Value must be >= 0 for field 'count'."),
        ("scale_out_zero", {"scale_out": {"count": 0}}, "Count for scale-out request cannot be 0."),
    ]
    for name, body, sentence in actions:
        yield Case(f"cluster_act_{name}", "POST", "/clusters/{cluster}/actions", 400, sentence, body)
    for name, params, sentence in _resizes():
        yield Case(f"cluster_resize_{name}", "POST", "/clusters/{cluster}/actions", 400, sentence, {"resize": params})
    full = "The target capacity (2) is greater than the cluster's max_size (1)."
    yield Case(
        "cluster_add_nodes_size", "POST", "/clusters/{full}/actions", 400, full, {"add_nodes": {"nodes": ["{orphan}"]}}
    )
    least = "The target capacity (0) is less than the cluster's min_size (1)."
    yield Case(
        "cluster_del_nodes_size", "POST", "/clusters/{full}/actions", 400, least, {"del_nodes": {"nodes": ["{only}"]}}
    )
    old = "API version '1.2' is not supported on this method."
    pair = {"replace_nodes": {"nodes": {"a": "b"}}}
    yield Case("cluster_replace_version", "POST", "/clusters/{cluster}/actions", 400, old, pair, "1.2")
    missing = f"The cluster '{ABSENT}' could not be found."
    for name, params in (
        ("add_nodes", {"nodes": ["n"]}),
        ("del_nodes", {"nodes": ["n"]}),
        ("replace_nodes", {"nodes": {"a": "b"}}),
        ("scale_in", {"count": 1}),
        ("scale_out", {"count": 1}),
        ("resize", {"max_size": 5}),
        ("check", {}),
        ("recover", {}),
        ("policy_attach", {"policy_id": "p"}),
        ("policy_detach", {"policy_id": "p"}),
        ("policy_update", {"policy_id": "p"}),
    ):
        yield Case(
            f"cluster_{name}_cluster_not_found", "POST", f"/clusters/{ABSENT}/actions", 404, missing, {name: params}
        )


def _resizes() -> Iterator[tuple[str, dict[str, Any], str]]:
    exact = {"adjustment_type": "EXACT_CAPACITY"}
    yield "nothing", {}, "Not enough parameters to do resize action."
    yield "only_strict", {"strict": True}, "Not enough parameters to do resize action."
    yield (
        "type",
        {"adjustment_type": "bogus", "number": 1},
        "Value 'bogus' is not acceptable for field 'adjustment_type'.",
    )
    yield "missing_type", {"number": 1}, "Missing adjustment_type value for size adjustment."
    yield "missing_number", exact, "Missing number value for size adjustment."
    negative = "The 'number' must be non-negative integer for adjustment type 'EXACT_CAPACITY'."
    yield "negative_number", {**exact, "number": -1}, negative
    yield "not_a_number", {**exact, "number": "x"}, "could not convert string to float: 'x'"
    over = "The specified min_size (20) is greater than the specified max_size (10)."
    yield "min_over_max", {"min_size": 20, "max_size": 10}, over
    yield "upper", {**exact, "number": 6}, "The target capacity (6) is greater than the cluster's max_size (5)."
    yield "lower", {**exact, "number": 1}, "The target capacity (1) is less than the cluster's min_size (2)."
    desired = "The specified max_size (2) is less than the current desired_capacity (3) of the cluster."
    yield "max_under_desired", {"max_size": 2, "strict": True}, desired
    least = "The specified max_size (1) is less than the current min_size (2) of the cluster."
    yield "max_under_min", {"max_size": 1, "strict": False}, least
    above = "The specified min_size (4) is greater than the current desired_capacity (3) of the cluster."
    yield "min_over_desired", {"min_size": 4, "strict": True}, above
    current = "The specified min_size (6) is greater than the current max_size (5) of the cluster."
    yield "min_over_current_max", {"min_size": 6, "strict": False}, current
    yield "max_too_large", {"max_size": 1001}, "Value must be <= 1000 for field 'max_size'."
    most = "The target capacity (1500) is greater than the maximum number of nodes allowed per cluster (1000)."
    yield "too_many", {"adjustment_type": _PERCENT, "number": 49900}, most


def _bindings() -> Iterator[Case]:
    at = "/clusters/{cluster}/policies"
    yield Case("binding_list_invalid_params", "GET", f"{at}?bogus=foo", 400, "Invalid parameter bogus")
    yield Case(
        "binding_list_invalid_sort", "GET", f"{at}?sort=bad-sort", 400, "Unsupported sort key 'bad-sort' for 'sort'."
    )
    enabled = "Invalid value 'bad-enabled' specified for 'enabled'"
    yield Case("binding_list_enabled", "GET", f"{at}?enabled=bad-enabled", 400, enabled)
    missing = f"The cluster '{ABSENT}' could not be found."
    yield Case("binding_list_cluster_not_found", "GET", f"/clusters/{ABSENT}/policies", 404, missing)
    yield Case("binding_show_cluster_not_found", "GET", f"/clusters/{ABSENT}/policies/p", 404, missing)
    yield Case("binding_show_policy_not_found", "GET", f"{at}/fake_policy", 404,
               "The policy 'fake_policy' could not be found.")  # fmt: skip
    yield Case("binding_show_not_attached", "GET", at + "/{policy}", 404,
               "The policy '{policy}' is not found attached to the specified cluster '{cluster}'.")  # fmt: skip
    twice = "Multiple results found matching the query criteria 'twice'. Please be more specific."
    yield Case("binding_show_multiple_choice", "GET", f"{at}/twice", 400, twice)


def _actions() -> Iterator[Case]:
    cancel = {"action": {"status": "CANCELLED"}}
    missing = f"The action '{ABSENT}' could not be found."
    yield Case("action_update_not_found", "PATCH", f"/actions/{ABSENT}", 404, missing, cancel, "1.12")
    unknown = "Unknown status FOO for action {action}."
    yield Case(
        "action_update_status_invalid", "PATCH", "/actions/{action}", 400, unknown, {"action": {"status": "FOO"}}
    )
    old = "API version '1.11' is not supported on this method."
    yield Case("action_update_version", "PATCH", "/actions/{action}", 400, old, cancel, "1.11")
    ended = "Action ({action}) is in status (SUCCEEDED) while expected status must be one of "
    yield Case("action_update_ended", "PATCH", "/actions/{action}", 409, ended, cancel)


CASES = [
    *_lists(),
    *_unknown(),
    *_names(),
    *_specs(),
    *_receivers(),
    *_nodes(),
    *_clusters(),
    *_bindings(),
    *_actions(),
]
