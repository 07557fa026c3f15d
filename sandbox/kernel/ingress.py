"""What an interface refuses to receive, by a filter that lasts as long as the interface does.

A rule of nftables would be gone with the socket that owns it, however its process ends; this one
holds as long as there is an interface to come in by.
"""

from __future__ import annotations

import struct

from sandbox.kernel import netlink
from sandbox.kernel.netlink import Netlink, attribute, nested, text

_NEW_QDISC, _NEW_FILTER = 36, 44
_PLACE = struct.Struct("=BxxxiIII")  # family, interface, handle, parent, priority and protocol
_INGRESS, _INGRESS_PARENT = 0xFFFF_0000, 0xFFFF_FFF1
_FIRST_AND_ALL_PROTOCOLS = 1 << 16 | 0x0300  # ETH_P_ALL in the network's order
_KIND, _OPTIONS = 1, 2
_BPF_COUNT, _BPF_CODE, _BPF_NAME, _BPF_FLAGS, _BPF_DECIDES = 4, 5, 7, 8, 1

_INSTRUCTION = struct.Struct("=HBBI")  # classic BPF: code, steps if true, if false, value
_LOAD_WORD, _LOAD_BYTE, _IF_EQUAL, _RETURN = 0x20, 0x30, 0x15, 0x06
_PROTOCOL_PLACE = 0xFFFF_F000  # SKF_AD_OFF + SKF_AD_PROTOCOL
_HEAD_PLACE = 0xFFF0_0000  # SKF_NET_OFF
_SOURCE, _DESTINATION = 12, 16
_IPV4 = 0x0800
_LOOPBACK = 127
_GO_ON, _DROP = 0xFFFF_FFFF, 2  # TC_ACT_UNSPEC and TC_ACT_SHOT

_PROGRAM = (
    (_LOAD_WORD, 0, 0, _PROTOCOL_PLACE),
    (_IF_EQUAL, 0, 4, _IPV4),
    (_LOAD_BYTE, 0, 0, _HEAD_PLACE + _SOURCE),
    (_IF_EQUAL, 3, 0, _LOOPBACK),
    (_LOAD_BYTE, 0, 0, _HEAD_PLACE + _DESTINATION),
    (_IF_EQUAL, 1, 0, _LOOPBACK),
    (_RETURN, 0, 0, _GO_ON),
    (_RETURN, 0, 0, _DROP),
)


def refuse_loopback(link: Netlink, index: int) -> None:
    """Have an interface drop what arrives with an address of the loopback's (127.0.0.0/8).

    Raises:
        OSError: not allowed, or the kernel lacks `sch_ingress` or `cls_bpf`.
    """
    place = _PLACE.pack(0, index, _INGRESS, _INGRESS_PARENT, 0)
    link.request(_NEW_QDISC, place + text(_KIND, "ingress"), netlink.CREATE)
    options = nested(
        _OPTIONS,
        attribute(_BPF_COUNT, struct.pack("=H", len(_PROGRAM))),
        attribute(_BPF_CODE, b"".join(_INSTRUCTION.pack(*step) for step in _PROGRAM)),
        text(_BPF_NAME, "sandbox-loopback"),
        attribute(_BPF_FLAGS, struct.pack("=I", _BPF_DECIDES)),
    )
    place = _PLACE.pack(0, index, 0, _INGRESS, _FIRST_AND_ALL_PROTOCOLS)
    link.request(_NEW_FILTER, place + text(_KIND, "bpf") + options, netlink.CREATE)
