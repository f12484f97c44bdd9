"""BMv2's services: what its runtime interface offers, with the names and numbers that clients know.

Source: standard.thrift, simple_pre.thrift, simple_pre_lag.thrift and simple_switch.thrift of p4lang/behavioral-model.
"""

from __future__ import annotations

# Relative, because courses import a copy of this folder under another name.
from .types import (
    BINARY,
    BOOL,
    DOUBLE,
    I16,
    I32,
    I64,
    TEXT,
    Enumeration,
    Service,
    Struct,
    ThriftError,
    ThriftType,
    declare,
    list_of,
    map_of,
)

# Standard: structs


class BmMatchParamType(Enumeration):
    """Kind of a match."""

    EXACT = 0
    LPM = 1
    TERNARY = 2
    VALID = 3
    RANGE = 4


class BmMatchParamExact(Struct):
    """Exact match."""

    fields = declare(key=BINARY)


class BmMatchParamLPM(Struct):
    """Longest-prefix match."""

    fields = declare(key=BINARY, prefix_length=I32)


class BmMatchParamTernary(Struct):
    """Ternary match."""

    fields = declare(key=BINARY, mask=BINARY)


class BmMatchParamValid(Struct):
    """Match of a header's validity."""

    fields = declare(key=BOOL)


class BmMatchParamRange(Struct):
    """Range match, both ends included."""

    fields = declare(start=BINARY, end_=BINARY)


class BmMatchParam(Struct):
    """Match of one key field."""

    fields = declare(
        type=I32,
        exact=BmMatchParamExact.as_type(),
        lpm=BmMatchParamLPM.as_type(),
        ternary=BmMatchParamTernary.as_type(),
        valid=BmMatchParamValid.as_type(),
        range=BmMatchParamRange.as_type(),
    )


class BmAddEntryOptions(Struct):
    """Options of an entry. The smaller priority wins."""

    fields = declare(priority=I32)


class BmCounterValue(Struct):
    """Value of a counter."""

    fields = declare(bytes=I64, packets=I64)


class BmMeterRateConfig(Struct):
    """One rate of a meter."""

    fields = declare(units_per_micros=DOUBLE, burst_size=I32)


class BmActionEntryType(Enumeration):
    """Kind of a reference in an entry."""

    NONE = 0
    ACTION_DATA = 1
    MBR_HANDLE = 2
    GRP_HANDLE = 3


class BmActionEntry(Struct):
    """Action, member or group of an entry."""

    fields = declare(
        action_type=I32,
        action_name=TEXT,
        action_data=list_of(BINARY),
        mbr_handle=I32,
        grp_handle=I32,
    )


class BmMtEntryLife(Struct):
    """Idle timeout of an entry, and the time since its last packet, in milliseconds."""

    fields = declare(timeout_ms=I32, time_since_hit_ms=I32)


class BmMtEntry(Struct):
    """Table entry."""

    fields = declare(
        match_key=list_of(BmMatchParam.as_type()),
        options=BmAddEntryOptions.as_type(),
        entry_handle=I32,
        action_entry=BmActionEntry.as_type(),
        life=BmMtEntryLife.as_type(),
    )


class BmMtActProfMember(Struct):
    """Member of an action profile."""

    fields = declare(mbr_handle=I32, action_name=TEXT, action_data=list_of(BINARY))


class BmMtActProfGroup(Struct):
    """Group of an action profile."""

    fields = declare(grp_handle=I32, mbr_handles=list_of(I32))


class BmConfig(Struct):
    """Settings of the switch."""

    fields = declare(
        device_id=I64,
        thrift_port=I32,
        notifications_socket=TEXT,
        elogger_socket=TEXT,
        debugger_socket=TEXT,
    )


class DevMgrPortInfo(Struct):
    """Port."""

    fields = declare(port_num=I32, iface_name=TEXT, is_up=BOOL, extra=map_of(TEXT, TEXT))


_CRC = {"data_reflected": BOOL, "remainder_reflected": BOOL}


class BmCrc16Config(Struct):
    """Parameters of a CRC of 16 bits."""

    fields = declare(polynomial=I16, initial_remainder=I16, final_xor_value=I16, **_CRC)


class BmCrc32Config(Struct):
    """Parameters of a CRC of 32 bits."""

    fields = declare(polynomial=I32, initial_remainder=I32, final_xor_value=I32, **_CRC)


class BmResourceType(Enumeration):
    """Kind of an object with an id."""

    MATCH_TABLE = 0
    ACTION_PROFILE = 1
    COUNTER = 2
    METER = 3
    REGISTER = 4
    LEARNING_LIST = 5


# Standard: errors


class TableOperationErrorCode(Enumeration):
    """Reason why a table operation failed."""

    TABLE_FULL = 1
    INVALID_HANDLE = 2
    EXPIRED_HANDLE = 3
    COUNTERS_DISABLED = 4
    METERS_DISABLED = 5
    AGEING_DISABLED = 6
    INVALID_TABLE_NAME = 7
    INVALID_ACTION_NAME = 8
    WRONG_TABLE_TYPE = 9
    INVALID_MBR_HANDLE = 10
    MBR_STILL_USED = 11
    MBR_ALREADY_IN_GRP = 12
    MBR_NOT_IN_GRP = 13
    INVALID_GRP_HANDLE = 14
    GRP_STILL_USED = 15
    EMPTY_GRP = 16
    DUPLICATE_ENTRY = 17
    BAD_MATCH_KEY = 18
    INVALID_METER_OPERATION = 19
    DEFAULT_ACTION_IS_CONST = 20
    DEFAULT_ENTRY_IS_CONST = 21
    NO_DEFAULT_ENTRY = 22
    INVALID_ACTION_PROFILE_NAME = 23
    NO_ACTION_PROFILE_SELECTION = 24
    IMMUTABLE_TABLE_ENTRIES = 25
    BAD_ACTION_DATA = 26
    NO_TABLE_KEY = 27
    ERROR = 100


class CounterOperationErrorCode(Enumeration):
    """Reason why a counter operation failed."""

    INVALID_COUNTER_NAME = 1
    INVALID_INDEX = 2
    ERROR = 3


class SwapOperationErrorCode(Enumeration):
    """Reason why a program was not replaced."""

    CONFIG_SWAP_DISABLED = 1
    ONGOING_SWAP = 2
    NO_ONGOING_SWAP = 3


class MeterOperationErrorCode(Enumeration):
    """Reason why a meter operation failed."""

    INVALID_METER_NAME = 1
    INVALID_INDEX = 2
    BAD_RATES_LIST = 3
    INVALID_INFO_RATE_VALUE = 4
    INVALID_BURST_SIZE_VALUE = 5
    ERROR = 6


class RegisterOperationErrorCode(Enumeration):
    """Reason why a register operation failed."""

    INVALID_REGISTER_NAME = 1
    INVALID_INDEX = 2
    ERROR = 3


class ParseVSetOperationErrorCode(Enumeration):
    """Reason why an operation on a parser value set failed."""

    INVALID_PARSE_VSET_NAME = 1
    ERROR = 2


class LearnOperationErrorCode(Enumeration):
    """Reason why an operation on digests failed."""

    INVALID_LIST_ID = 1
    INVALID_LIST_NAME = 2
    ERROR = 3


class DevMgrErrorCode(Enumeration):
    """Reason why an operation on ports failed."""

    ERROR = 1


class CrcErrorCode(Enumeration):
    """Reason why the parameters of a CRC were refused."""

    INVALID_CALCULATION_NAME = 1
    WRONG_TYPE_CALCULATION = 2
    INVALID_CONFIG = 3


class ToeplitzHashErrorCode(Enumeration):
    """Reason why a toeplitz key was refused."""

    INVALID_CALCULATION_NAME = 1
    WRONG_TYPE_CALCULATION = 2
    INVALID_KEY = 3


class IdLookupErrorCode(Enumeration):
    """Reason why an object was not found."""

    INVALID_RESOURCE_TYPE = 0
    INVALID_RESOURCE_NAME = 1


class InvalidTableOperation(ThriftError):
    """Table operation that failed."""


class InvalidCounterOperation(ThriftError):
    """Counter operation that failed."""


class InvalidSwapOperation(ThriftError):
    """Program that was not replaced."""


class InvalidMeterOperation(ThriftError):
    """Meter operation that failed."""


class InvalidRegisterOperation(ThriftError):
    """Register operation that failed."""


class InvalidParseVSetOperation(ThriftError):
    """Operation on a parser value set that failed."""


class InvalidLearnOperation(ThriftError):
    """Operation on digests that failed."""


class InvalidDevMgrOperation(ThriftError):
    """Operation on ports that failed."""


class InvalidCrcOperation(ThriftError):
    """Parameters of a CRC that were refused."""


class InvalidToeplitzHashOperation(ThriftError):
    """Toeplitz key that was refused."""


class InvalidIdLookup(ThriftError):
    """Object that was not found."""


# Standard: methods. Most name a context first, of which there is only number 0.

_Methods = dict[str, tuple[ThriftType | None, dict[str, ThriftType]]]

_CONTEXT = {"cxt_id": I32}
_TABLE = {**_CONTEXT, "table_name": TEXT}
_ENTRY = {**_TABLE, "entry_handle": I32}
_KEY = {"match_key": list_of(BmMatchParam.as_type())}
_OPTIONS = {"options": BmAddEntryOptions.as_type()}
_ACTION = {"action_name": TEXT, "action_data": list_of(BINARY)}
_PROFILE = {**_CONTEXT, "act_prof_name": TEXT}
_MEMBER = {"mbr_handle": I32}
_GROUP = {"grp_handle": I32}
_RATES = list_of(BmMeterRateConfig.as_type())

_TABLES: _Methods = {
    "bm_mt_get_num_entries": (I64, _TABLE),
    "bm_mt_clear_entries": (None, {**_TABLE, "reset_default_entry": BOOL}),
    "bm_mt_add_entry": (I32, {**_TABLE, **_KEY, **_ACTION, **_OPTIONS}),
    "bm_mt_set_default_action": (None, {**_TABLE, **_ACTION}),
    "bm_mt_reset_default_entry": (None, _TABLE),
    "bm_mt_delete_entry": (None, _ENTRY),
    "bm_mt_modify_entry": (None, {**_ENTRY, **_ACTION}),
    "bm_mt_set_entry_ttl": (None, {**_ENTRY, "timeout_ms": I32}),
    "bm_mt_act_prof_add_member": (I32, {**_PROFILE, **_ACTION}),
    "bm_mt_act_prof_delete_member": (None, {**_PROFILE, **_MEMBER}),
    "bm_mt_act_prof_modify_member": (None, {**_PROFILE, **_MEMBER, **_ACTION}),
    "bm_mt_act_prof_create_group": (I32, _PROFILE),
    "bm_mt_act_prof_delete_group": (None, {**_PROFILE, **_GROUP}),
    "bm_mt_act_prof_add_member_to_group": (None, {**_PROFILE, **_MEMBER, **_GROUP}),
    "bm_mt_act_prof_remove_member_from_group": (None, {**_PROFILE, **_MEMBER, **_GROUP}),
    "bm_mt_act_prof_get_members": (list_of(BmMtActProfMember.as_type()), _PROFILE),
    "bm_mt_act_prof_get_member": (BmMtActProfMember.as_type(), {**_PROFILE, **_MEMBER}),
    "bm_mt_act_prof_get_groups": (list_of(BmMtActProfGroup.as_type()), _PROFILE),
    "bm_mt_act_prof_get_group": (BmMtActProfGroup.as_type(), {**_PROFILE, **_GROUP}),
    "bm_mt_indirect_add_entry": (I32, {**_TABLE, **_KEY, **_MEMBER, **_OPTIONS}),
    "bm_mt_indirect_modify_entry": (None, {**_ENTRY, **_MEMBER}),
    "bm_mt_indirect_delete_entry": (None, _ENTRY),
    "bm_mt_indirect_set_entry_ttl": (None, {**_ENTRY, "timeout_ms": I32}),
    "bm_mt_indirect_set_default_member": (None, {**_TABLE, **_MEMBER}),
    "bm_mt_indirect_reset_default_entry": (None, _TABLE),
    "bm_mt_indirect_ws_add_entry": (I32, {**_TABLE, **_KEY, **_GROUP, **_OPTIONS}),
    "bm_mt_indirect_ws_modify_entry": (None, {**_ENTRY, **_GROUP}),
    "bm_mt_indirect_ws_set_default_group": (None, {**_TABLE, **_GROUP}),
    "bm_mt_read_counter": (BmCounterValue.as_type(), _ENTRY),
    "bm_mt_reset_counters": (None, _TABLE),
    "bm_mt_write_counter": (None, {**_ENTRY, "value": BmCounterValue.as_type()}),
    "bm_mt_set_meter_rates": (None, {**_ENTRY, "rates": _RATES}),
    "bm_mt_get_meter_rates": (_RATES, _ENTRY),
    "bm_mt_get_entries": (list_of(BmMtEntry.as_type()), _TABLE),
    "bm_mt_get_entry": (BmMtEntry.as_type(), _ENTRY),
    "bm_mt_get_default_entry": (BmActionEntry.as_type(), _TABLE),
    "bm_mt_get_entry_from_key": (BmMtEntry.as_type(), {**_TABLE, **_KEY, **_OPTIONS}),
}

_COUNTER = {**_CONTEXT, "counter_name": TEXT}
_METER = {**_CONTEXT, "meter_array_name": TEXT}
_REGISTER = {**_CONTEXT, "register_array_name": TEXT}
_VALUE_SET = {**_CONTEXT, "parse_vset_name": TEXT}
_CALCULATION = {**_CONTEXT, "calc_name": TEXT}
_LIST = {**_CONTEXT, "list_id": I32}

_OTHERS: _Methods = {
    "bm_counter_read": (BmCounterValue.as_type(), {**_COUNTER, "index": I32}),
    "bm_counter_reset_all": (None, _COUNTER),
    "bm_counter_write": (None, {**_COUNTER, "index": I32, "value": BmCounterValue.as_type()}),
    "bm_learning_ack": (None, {**_LIST, "buffer_id": I64, "sample_ids": list_of(I32)}),
    "bm_learning_ack_buffer": (None, {**_LIST, "buffer_id": I64}),
    "bm_learning_set_timeout": (None, {**_LIST, "timeout_ms": I32}),
    "bm_learning_set_buffer_size": (None, {**_LIST, "nb_samples": I32}),
    "bm_load_new_config": (None, {"config_str": TEXT}),
    "bm_swap_configs": (None, {}),
    "bm_meter_array_set_rates": (None, {**_METER, "rates": _RATES}),
    "bm_meter_set_rates": (None, {**_METER, "index": I32, "rates": _RATES}),
    "bm_meter_get_rates": (_RATES, {**_METER, "index": I32}),
    "bm_register_read": (I64, {**_REGISTER, "idx": I32}),
    "bm_register_read_all": (list_of(I64), _REGISTER),
    "bm_register_write": (None, {**_REGISTER, "index": I32, "value": I64}),
    "bm_register_write_range": (
        None,
        {**_REGISTER, "start_index": I32, "end_index": I32, "value": I64},
    ),
    "bm_register_reset": (None, _REGISTER),
    "bm_parse_vset_add": (None, {**_VALUE_SET, "value": BINARY}),
    "bm_parse_vset_remove": (None, {**_VALUE_SET, "value": BINARY}),
    "bm_parse_vset_get": (list_of(BINARY), _VALUE_SET),
    "bm_parse_vset_clear": (None, _VALUE_SET),
    "bm_dev_mgr_add_port": (None, {"iface_name": TEXT, "port_num": I32, "pcap_path": TEXT}),
    "bm_dev_mgr_remove_port": (None, {"port_num": I32}),
    "bm_dev_mgr_show_ports": (list_of(DevMgrPortInfo.as_type()), {}),
    "bm_set_crc16_custom_parameters": (None, {**_CALCULATION, "crc16_config": BmCrc16Config.as_type()}),
    "bm_set_crc32_custom_parameters": (None, {**_CALCULATION, "crc32_config": BmCrc32Config.as_type()}),
    "bm_set_toeplitz_hash_key": (None, {**_CALCULATION, "key": BINARY}),
    "bm_get_id_from_name": (I32, {**_CONTEXT, "resource_type": I32, "resource_name": TEXT}),
}

STANDARD = Service(
    "standard",
    InvalidTableOperation,
    {**_TABLES, **_OTHERS},
    {
        "bm_mgmt_get_info": (BmConfig.as_type(), {}),
        "bm_reset_state": (None, {}),
        "bm_get_config": (TEXT, {}),
        "bm_get_config_md5": (BINARY, {}),
        "bm_serialize_state": (TEXT, {}),
    },
    {
        "bm_counter_": InvalidCounterOperation,
        "bm_learning_": InvalidLearnOperation,
        "bm_load_": InvalidSwapOperation,
        "bm_swap_": InvalidSwapOperation,
        "bm_meter_": InvalidMeterOperation,
        "bm_register_": InvalidRegisterOperation,
        "bm_parse_vset_": InvalidParseVSetOperation,
        "bm_dev_mgr_": InvalidDevMgrOperation,
        "bm_set_crc": InvalidCrcOperation,
        "bm_set_toeplitz": InvalidToeplitzHashOperation,
        "bm_get_id_": InvalidIdLookup,
    },
)


# The packet replication engine, without and with groups of links (LAG)


class McOperationErrorCode(Enumeration):
    """Reason why a multicast operation failed."""

    TABLE_FULL = 1
    INVALID_MGID = 2
    INVALID_MGRP_HANDLE = 3
    INVALID_L1_HANDLE = 4
    ERROR = 5


class InvalidMcOperation(ThriftError):
    """Multicast operation that failed."""


_NODE = {"l1_handle": I32}
_IN_GROUP = {**_CONTEXT, "mgrp_handle": I32, **_NODE}
_PORTS = {"port_map": TEXT}
_PORTS_AND_LAGS = {**_PORTS, "lag_map": TEXT}


def _replication(places: dict[str, ThriftType]) -> _Methods:
    return {
        "bm_mc_mgrp_create": (I32, {**_CONTEXT, "mgrp": I32}),
        "bm_mc_mgrp_destroy": (None, {**_CONTEXT, "mgrp_handle": I32}),
        "bm_mc_node_create": (I32, {**_CONTEXT, "rid": I32, **places}),
        "bm_mc_node_associate": (None, _IN_GROUP),
        "bm_mc_node_dissociate": (None, _IN_GROUP),
        "bm_mc_node_destroy": (None, {**_CONTEXT, **_NODE}),
        "bm_mc_node_update": (None, {**_CONTEXT, **_NODE, **places}),
        "bm_mc_get_entries": (TEXT, _CONTEXT),
    }


SIMPLE_PRE = Service("simple_pre", InvalidMcOperation, _replication(_PORTS))
SIMPLE_PRE_LAG = Service(
    "simple_pre_lag",
    InvalidMcOperation,
    {
        **_replication(_PORTS_AND_LAGS),
        "bm_mc_set_lag_membership": (None, {**_CONTEXT, "lag_index": I16, **_PORTS}),
    },
)


# simple_switch


class MirroringSessionConfig(Struct):
    """Destination of the packets of a mirroring session: to a port, a multicast group, or both."""

    fields = declare(port=I32, mgid=I32)


class MirroringOperationErrorCode(Enumeration):
    """Reason why an operation on a mirroring session failed."""

    SESSION_NOT_FOUND = 1


class InvalidMirroringOperation(ThriftError):
    """Operation on a mirroring session that failed."""


_SESSION = {"mirror_id": I32}

SIMPLE_SWITCH = Service(
    "simple_switch",
    InvalidMirroringOperation,
    {
        "mirroring_session_add": (None, {**_SESSION, "config": MirroringSessionConfig.as_type()}),
        "mirroring_session_delete": (None, _SESSION),
        "mirroring_session_get": (MirroringSessionConfig.as_type(), _SESSION),
    },
    {
        "mirroring_mapping_add": (I32, {**_SESSION, "egress_port": I32}),
        "mirroring_mapping_delete": (I32, _SESSION),
        "mirroring_mapping_get_egress_port": (I32, _SESSION),
        "set_egress_priority_queue_depth": (I32, {"port_num": I32, "priority": I32, "depth_pkts": I32}),
        "set_egress_queue_depth": (I32, {"port_num": I32, "depth_pkts": I32}),
        "set_all_egress_queue_depths": (I32, {"depth_pkts": I32}),
        "set_egress_priority_queue_rate": (I32, {"port_num": I32, "priority": I32, "rate_pps": I64}),
        "set_egress_queue_rate": (I32, {"port_num": I32, "rate_pps": I64}),
        "set_all_egress_queue_rates": (I32, {"rate_pps": I64}),
        "get_time_elapsed_us": (I64, {}),
        "get_time_since_epoch_us": (I64, {}),
    },
)
