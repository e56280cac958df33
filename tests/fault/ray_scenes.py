"""What happens on Ray, one scene a process; run by `test_builds_on_ray` as a script.

::

    python ray_scenes.py SCENE FOLDER

builds ``FOLDER/in`` into ``FOLDER/SCENE`` and prints what was seen, as JSON. A process of its own,
since Ray leaves threads and an atexit behind.
"""

import contextlib
import faulthandler
import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import tokenloom as tl

OPTIONS = {
    "tokenizer": "bytes",
    "inner": 64,
    "block_bytes": 600,
    "shard_tokens": 500,
    "chunk_tokens": 128,
    "stretches": 6,
    "transform": "slowly:pause",
    "progress": False,
}


def inputs_of(folder):
    return sorted(str(path) for path in (folder / "in").iterdir())


def workers_on_ray():
    """Processes that run a task now."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                if b"ray::_stretch" in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
    return found


def after_some_shards(out, then):
    """Call `then` in a thread once three shards are there and no stretch is done."""
    seen = {}

    def watch():
        while len(list(out.glob("shard-*"))) < 3:
            time.sleep(0.01)
        seen["shards"] = len(list(out.glob("shard-*")))
        seen["records"] = len(list(out.glob("stretch-*")))
        seen["killed"] = then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return seen, thread


def started(cpus):
    """A cluster of the user's, on this machine."""
    import ray

    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    return ray


def scene_smoke(folder):
    """One worker does two builds that differ in their folders only, and one with a bad record."""
    ray, texts = started(cpus=1), {}
    for day in ("monday", "tuesday"):
        (folder / day).mkdir()
        lines = [json.dumps({"text": f"{day[:3]} {number:03}"}) for number in range(40)]
        path = folder / day / "part.jsonl"
        path.write_text("\n".join(lines))
        options = {"tokenizer": "bytes", "block_bytes": 200, "stretches": 3, "progress": True}
        stores = [
            tl.build(path, folder / f"{day}-{executor}", executor=executor, **options)
            for executor in ("local", "ray")
        ]
        texts[day] = bytes(stores[1][39].tolist()).decode()
    bad, errors = folder / "bad.jsonl", []
    bad.write_text('{"text": "a"}\n' * 9 + "{\n")
    for executor in ("local", "ray"):
        options = {"tokenizer": "bytes", "stretches": 2, "executor": executor, "workers": 1}
        try:
            tl.build(bad, folder / f"bad-{executor}", **options)
        except tl.InputError as error:
            errors.append(str(error))
    return {"texts": texts, "errors": errors, "up": ray.is_initialized()}


def scene_bucket(folder):
    """Inputs and store are in a bucket; a cluster for one call, and all that the driver hears."""
    import ray

    url, sent, received, sizes = os.environ["LOOM_BUCKET"], [], [], []
    put, get = ray.put, ray.get

    def sending(value, **options):
        sent.append(repr(value))
        return put(value, **options)

    def receiving(*asked, **options):
        answer = get(*asked, **options)
        received.append(repr(answer))
        sizes.append(len(pickle.dumps(answer)))
        return answer

    ray.put, ray.get = sending, receiving
    inputs = [f"{url}/in/part-{number}.jsonl" for number in range(2)]
    watched = {**OPTIONS, "progress": True, "executor": "ray", "workers": 2}
    store = tl.build(inputs, f"{url}/store", **watched)
    return {
        "manifest": store.manifest_sha256,
        "sent": sent,
        "received": received,
        "sizes": sizes,
        "up": ray.is_initialized(),
    }


def scene_worker(folder):
    """A worker is killed while it works."""
    out = folder / "worker"

    def kill():
        pid = workers_on_ray()[0]
        os.kill(pid, signal.SIGKILL)
        return 1

    seen, thread = after_some_shards(out, kill)
    tl.build(inputs_of(folder), out, executor="ray", workers=2, **OPTIONS)
    thread.join(60)
    return seen


def scene_node(folder):
    """A node is killed while its tasks work and somebody watches; another takes them over."""
    import ray
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    out = folder / "node"

    def kill():
        cluster.remove_node(nodes[0], allow_graceful=False)
        return 1

    seen, thread = after_some_shards(out, kill)
    tl.build(inputs_of(folder), out, executor="ray", **{**OPTIONS, "progress": True})
    thread.join(60)
    end = time.monotonic() + 60  # Ray notices a dead node when its heartbeats are missed
    while (alive := sum(node["Alive"] for node in ray.nodes())) > 2 and time.monotonic() < end:
        time.sleep(0.2)
    seen["nodes"] = alive
    ray.shutdown()
    cluster.shutdown()
    return seen


def scene_address(folder):
    """A cluster that is already there, named by its address."""
    import ray
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **quiet})
    address, refused = cluster.address, []
    inputs = inputs_of(folder)

    def build(name, executor):
        return tl.build(inputs, folder / name, executor=executor, tokenizer="bytes", stretches=2)

    digests = [build("address", f"ray:{address}").digest]
    left_running = ray.is_initialized()
    ray.init(address=address, log_to_driver=False)
    host, _, port = address.rpartition(":")
    good = ["ray", "ray:auto", f"ray:{socket.gethostbyname(host)}:{port}"]
    digests += [build(f"good-{number}", one).digest for number, one in enumerate(good)]
    for other in (f"ray:{host}:1", "ray:local"):
        try:
            build("other", other)
        except tl.ConfigError as error:
            refused.append(str(error))
    still = ray.is_initialized()
    ray.shutdown()
    cluster.shutdown()
    try:
        build("gone", f"ray:{address}")
    except tl.WorkerError as error:
        refused.append(str(error))
    return {
        "address": address,
        "left_running": left_running,
        "still": still,
        "digests": digests,
        "refused": refused,
    }


if __name__ == "__main__":
    faulthandler.dump_traceback_later(900)  # where it hangs, should it ever
    scene, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(globals()[f"scene_{scene}"](folder)))
