"""One partition as the cleaner sees it: how dirty it is, the job that cleans it, and taking the result in.

Between the log, which belongs to the event loop, and the cleaner's process, which sees files only. Nothing
here waits for the disk.
"""

from itertools import pairwise

from broker.config.server_settings import LogSettings
from broker.log import snapshots
from broker.log.cleaner import plan, swap
from broker.log.cleaner.job import BYTES_PER_KEY, GroupCleaned, Job, SegmentFile
from broker.log.partition_log import Log
from broker.log.segment import Segment


def dirt_of(log: Log, checkpoint: int | None, now_ms: int) -> plan.Dirt:
    return plan.dirt(
        log.segments.items,
        log.config,
        now_ms,
        checkpoint=checkpoint,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        stable_offset=log.last_stable_offset,
    )


def job_for(log: Log, dirt: plan.Dirt, settings: LogSettings, now_ms: int) -> Job:
    config, items = log.config, log.segments.items
    buffer = settings.log_cleaner_dedupe_buffer_size // max(1, settings.log_cleaner_threads)
    return Job(
        directory=log.directory,
        segments=tuple(
            SegmentFile(segment.base_offset, segment.size, behind.base_offset)
            for segment, behind in pairwise(items)
            if behind.base_offset <= dirt.first_uncleanable
        ),
        aborted_in=tuple(segment.base_offset for segment in items),
        first_dirty=dirt.first_dirty,
        map_capacity=buffer // BYTES_PER_KEY,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        now_ms=now_ms,
        bytes_per_second=settings.log_cleaner_io_max_bytes_per_second,
        producers=log.producers.last_data_offsets(),
    )


def swap_in(log: Log, job: Job, event: GroupCleaned, now_ms: int) -> bool:
    """Put a cleaned segment in the place of its originals; False when these have changed meanwhile.

    Raises OSError.
    """
    sizes = {segment.base_offset: segment.size for segment in job.segments}
    items = log.segments.items
    first = next((n for n, item in enumerate(items) if item.base_offset == event.bases[0]), len(items))
    old = items[first : first + len(event.bases)]
    same = [(item.base_offset, item.size) for item in old] == [(at, sizes[at]) for at in event.bases]
    if not same or log.segments.active in old:
        return False
    new = Segment(
        log.directory,
        event.bases[0],
        size=event.size,
        config=log.config,
        now_ms=now_ms,
        suffix=swap.CLEANED,
    )
    new.max_timestamp = event.largest_timestamp
    new.max_timestamp_offset = event.largest_timestamp_offset
    swap.replace(log.segments, old, new, now_ms + log.config.file_delete_delay_ms)
    snapshots.prune(log.directory, (segment.base_offset for segment in log.segments))
    return True
