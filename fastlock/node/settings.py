"""The settings as the parts below the node want them."""

from __future__ import annotations

from fastlock._core.raft_settings import RaftSettings
from fastlock.config import Config
from fastlock.node.group import GroupSettings
from fastlock.storage.lmdb import StorageLimits


def group_settings(config: Config) -> GroupSettings:
    raft = config.raft
    return GroupSettings(
        raft=RaftSettings(
            election_ms_min=raft.election_ms_min,
            election_ms_max=raft.election_ms_max,
            heartbeat_ms=raft.heartbeat_ms,
            append_bytes_max=raft.append_bytes_max,
            inflight_messages_max=raft.inflight_messages_max,
            inflight_bytes_max=raft.inflight_bytes_max,
            window_batches=raft.window_batches,
            window_large_bytes=raft.window_large_bytes,
            reads_pending_max=raft.reads_pending_max,
        ),
        heartbeat_ms=raft.heartbeat_ms,
        expiry_poll_ms=config.group.expiry_poll_ms,
        checkpoint_dirty_rows=config.group.checkpoint_dirty_rows,
        checkpoint_slice_rows=config.group.checkpoint_slice_rows,
        log_keep_entries=config.group.log_keep_entries,
        history_events_max=config.group.history_events_max,
        history_bytes_max=config.group.history_bytes_max,
    )


def storage_limits(config: Config) -> StorageLimits:
    return StorageLimits(
        log_map_bytes_max=config.storage.log_bytes_max,
        table_map_bytes_max=config.storage.table_bytes_max,
        map_reserve_bytes=config.storage.map_reserve_bytes,
        disk_reserve_bytes=config.storage.disk_reserve_bytes,
    )
