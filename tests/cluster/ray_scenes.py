"""What happens on Ray, one scene a process; run by `test_ray` as a script.

::

    python ray_scenes.py SCENE FOLDER

builds ``FOLDER/in`` into ``FOLDER/SCENE`` and prints what was seen, as JSON. A process of its own,
since Ray leaves threads and an atexit behind.
"""

import contextlib
import json
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import tokenloom as tl
from tokenloom.cluster import check_store
from tokenloom.ingest.cluster import on_ray

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


def listen(heard):
    """Note the size of each result that the driver gets, and of all that it sends."""
    real, pack = on_ray._result, on_ray.pack_plan

    def result(ray, reference):
        answer = real(ray, reference)
        heard["received"].append(len(pickle.dumps(answer)))
        return answer

    def packed(plan):
        heard["sent"] = repr(pack(plan))
        return pack(plan)

    on_ray._result, on_ray.pack_plan = result, packed


def scene_plain(folder):
    """A cluster of our own, for one call."""
    heard = {"received": []}
    listen(heard)
    os.environ["AWS_SECRET_ACCESS_KEY"] = "hidden-7f3a"
    tl.build(inputs_of(folder), folder / "plain", executor="ray", workers=2, **OPTIONS)
    import ray

    left_running, received = ray.is_initialized(), list(heard["received"])
    report = check_store(folder / "plain", workers=2)
    return {
        "verified": report == tl.open(folder / "plain").check(progress=False) and report.ok,
        "received": sum(received),
        "results": len(received),
        "secret_sent": "hidden-7f3a" in heard["sent"],
        "left_running": left_running,
    }


def bucket_inputs(url):
    return [f"{url}/in/part-{number}.jsonl" for number in range(2)]


def scene_bucket(folder):
    """Inputs and store are in a bucket; every message to and from tasks is kept."""
    url = (folder / "url").read_text()
    messages, run, result = [], on_ray.run_on_ray, on_ray._result

    def sending(function, message, tasks, workers, done):
        messages.append(pickle.dumps((message, tasks)))
        run(function, message, tasks, workers, done)

    def receiving(ray, reference):
        answer = result(ray, reference)
        messages.append(pickle.dumps(answer))
        return answer

    on_ray.run_on_ray, on_ray._result = sending, receiving
    store = tl.build(bucket_inputs(url), f"{url}/store", executor="ray", workers=2, **OPTIONS)
    return {"digest": store.digest, "messages": [one.hex() for one in messages]}


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
    """A node is killed while its tasks work; another takes them over."""
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
    tl.build(inputs_of(folder), out, executor="ray", **OPTIONS)
    thread.join(60)
    end = time.monotonic() + 60  # Ray notices a dead node when its heartbeats are missed
    while (alive := sum(node["Alive"] for node in ray.nodes())) > 2 and time.monotonic() < end:
        time.sleep(0.2)
    seen["nodes"] = alive
    ray.shutdown()
    cluster.shutdown()
    return seen


def scene_error(folder):
    """A bad record is named as in a local build, and nothing is published."""
    bad = folder / "bad.jsonl"
    bad.write_text('{"text": "a"}\n' * 9 + "{\n")
    told = []
    for executor in ("local", "ray"):
        try:
            tl.build(
                bad,
                folder / f"bad-{executor}",
                tokenizer="bytes",
                stretches=2,
                executor=executor,
                workers=1,
            )
        except tl.InputError as error:
            told.append(str(error))
    return {"told": told}


if __name__ == "__main__":
    scene, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(globals()[f"scene_{scene}"](folder)))
