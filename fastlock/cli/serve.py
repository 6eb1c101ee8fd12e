"""`fastlock serve`: one node, until a signal stops it or it can no longer keep its promises."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine

from fastlock import __version__
from fastlock.config import Config, load_config, settings
from fastlock.errors import ConfigError, FastlockError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

_EXAMPLES = """\
examples:
  fastlock serve --data-dir /var/lib/fastlock
      a cluster of one, on loopback
  fastlock serve --node-id 1 --data-dir /var/lib/fastlock \\
      --native 10.0.0.1:7400 --peer 10.0.0.1:7401 --http 10.0.0.1:7402 --resp 10.0.0.1:7403 \\
      --cluster 1=10.0.0.1:7401,2=10.0.0.2:7401,3=10.0.0.3:7401
      the first of three; the same --cluster on all of them
  fastlock serve --config fastlock.toml --set raft.heartbeat_ms=50

Every setting is in docs/CONFIGURATION.md.
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="run one node",
        description="Runs one node of a cluster, or a cluster of one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for setting in settings():
        if setting.flag is not None:
            parser.add_argument(
                setting.flag, dest=setting.key, metavar=_metavar(setting.key), help=setting.meaning
            )
    add_config_arguments(parser)
    parser.set_defaults(run=serve)


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="settings in TOML")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated"
    )


def _metavar(key: str) -> str:
    if key == "cluster.members":
        return "N=HOST:PEERPORT,…"
    if key in ("node.id", "cluster.partitions"):
        return "N"
    return {"node.data_dir": "DIR", "listen.advertise": "HOST"}.get(key, "HOST:PORT")


def serve(options: argparse.Namespace) -> int:
    flags = {setting.key: getattr(options, setting.key) for setting in settings() if setting.flag is not None}
    try:
        config = load_config(options.config, os.environ, options.set, flags)
    except ConfigError as error:
        print(f"fastlock: {error}", file=sys.stderr)
        return EXIT_USAGE
    start_logging(config)
    # Only this command needs a whole node: the others start faster without.
    import uvloop

    return uvloop.run(_serve(config))


def start_logging(config: Config) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=config.log.level.upper(),
        format=f"%(asctime)s %(levelname)s node {config.node.id}: %(message)s",
    )
    # The HTTP server's own comings and goings are of no interest.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


async def _serve(config: Config) -> int:
    from fastlock.node.server import Node
    from fastlock.storage import StorageDamaged, StorageFailed

    node = Node(config, software=f"fastlock {__version__}")
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        if await _before(stopped, node.start()):
            addresses = ", ".join(f"{name} {address}" for name, address in node.addresses.items())
            logging.getLogger("fastlock").info("serves: %s", addresses)
            _keep_memory()
            await _before(stopped, node.run())
            await node.stop()
    except ConfigError as error:
        print(f"fastlock: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (FastlockError, StorageDamaged, StorageFailed) as error:
        print(f"fastlock: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        await node.close()
    return EXIT_OK


def _keep_memory() -> None:
    """What lives after the start lives long: collections would walk it for milliseconds, and free nothing."""
    gc.collect()
    gc.freeze()
    gc.disable()


async def _before(stopped: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Whether the work came to its end before the signal to stop; raises what it raised."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    await asyncio.wait((working,))
    return False
