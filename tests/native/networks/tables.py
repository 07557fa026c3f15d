"""Print the names of the nftables tables of IPv4, as pyroute2 reads them."""

from __future__ import annotations

import socket

from pyroute2.nftables.main import NFTables

with NFTables(nfgen_family=socket.AF_INET) as tables:
    for table in tables.get_tables():
        print(table.get_attr("NFTA_TABLE_NAME"))
