"""What happens on Ray, one scene a process; run by `test_ray` as a script.

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
from tokenloom.cluster import audit_run, check_certificate, check_store, prepare_run
from tokenloom.ingest.cluster import on_ray, ray_tasks, under_way
from tokenloom.testing import tiny

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

# shards of 16 KB, so that tokens would be ten times of what a driver may hear for a shard
LARGE = {**OPTIONS, "shard_tokens": 8000}


def write_large(folder):
    """Two files of 150 documents of 900 characters."""
    (folder / "in").mkdir()
    for number in range(2):
        texts = [f"{number} {place} ".ljust(900, "abcdefg"[place % 7]) for place in range(150)]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"in/part-{number}.jsonl").write_text(lines)


def inputs_of(folder):
    return sorted(str(path) for path in (folder / "in").iterdir())


def workers_on_ray(function="_stretch"):
    """Processes that run a task now."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                if f"ray::{function}".encode() in (place / "cmdline").read_bytes():
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
    """Note the size of everything that the driver gets, of what it sends, and what it shows."""
    import ray

    real, pack, show = ray.get, on_ray.pack_plan, under_way.Watch._show

    def get(*asked, **options):
        answer = real(*asked, **options)
        heard["received"].append(len(pickle.dumps(answer)))
        if isinstance(answer, dict) and "stretch" in answer:
            heard["stretches"].append(heard["received"][-1])
        return answer

    def packed(plan):
        heard["sent"] = repr(pack(plan))
        return pack(plan)

    def shown(watch, more):
        heard["under_way"].append(list(more.values()))
        show(watch, more)
        heard["shown"].append(watch._shown["bytes"])

    ray.get, on_ray.pack_plan, under_way.Watch._show = get, packed, shown


def scene_plain(folder):
    """A cluster of our own, for one call, and somebody who watches."""
    heard = {"received": [], "stretches": [], "under_way": [], "shown": []}
    listen(heard)
    os.environ["AWS_SECRET_ACCESS_KEY"] = "hidden-7f3a"
    under_way.EVERY = ray_tasks.PATIENCE = 0.05  # seconds; stretches are short
    watched = {**LARGE, "progress": True}
    tl.build(inputs_of(folder), folder / "plain", executor="ray", workers=2, **watched)
    import ray

    left_running, received = ray.is_initialized(), list(heard["received"])
    report = check_store(folder / "plain", workers=2)
    return {
        "verified": report == tl.open(folder / "plain").check(progress=False) and report.ok,
        "received": received,
        "stretches": heard["stretches"],
        "under_way": max(heard["under_way"]),
        "shown": heard["shown"],
        "secret_sent": "hidden-7f3a" in heard["sent"],
        "left_running": left_running,
    }


def bucket_inputs(url):
    return [f"{url}/in/part-{number}.jsonl" for number in range(2)]


def scene_bucket(folder):
    """Inputs and store are in a bucket; every message to and from tasks is kept."""
    url = (folder / "url").read_text()
    messages, run, result = [], on_ray.on_ray, ray_tasks._result

    def sending(function, message, tasks, **options):
        messages.append(pickle.dumps((message, tasks)))
        return run(function, message, tasks, **options)

    def receiving(ray, reference):
        answer = result(ray, reference)
        messages.append(pickle.dumps(answer))
        return answer

    on_ray.on_ray, ray_tasks._result = sending, receiving
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


# -- runs -----------------------------------------------------------------------------------


ROW, ROWS = 512, 1700  # tokens of a row, rows that are audited


def packed_run(folder):
    """A mix that packs, counts and adds up; in this process, small runs are worth keeping."""
    tiny(
        min_cached_packing_documents=1,
        min_cached_cost_items=1,
        min_cached_trained_rows=1,
        packing_piece_groups=4,
        cost_piece_items=2048,
        trained_piece_rows=100,
        audit_piece_rendered_examples=100,  # 100 KB of tokens
    ).__enter__()  # until the process ends
    store = tl.open(folder / "whole")
    sources = {
        "packed": store.pack(ROW, group_docs=20, min_len=2).shuffle(),
        "windows": store.windows(ROW).shuffle(),
    }
    return tl.mix(sources, weights={"packed": 2, "windows": 1}, cost="loss_tokens").seed(5)


def cache_in(folder, name):
    os.environ["TOKENLOOM_CACHE_DIR"] = str(folder / name)


def scene_runs(folder):
    """Plans, sums and a certificate, here and on Ray."""
    config = packed_run(folder).describe()
    cache_in(folder, "cache-local")
    here = prepare_run(config, epochs=2, executor="local", progress=False)
    cache_in(folder, "cache-ray")
    there = prepare_run(config, epochs=2, workers=2, progress=False)
    run = tl.from_config(config)
    whole = run.audit(0, ROWS, progress=False)
    heard = {"received": [], "stretches": [], "under_way": [], "shown": []}
    listen(heard)
    found = audit_run(run, 0, ROWS, workers=2, progress=False)
    received = list(heard["received"])
    checked = check_certificate(whole, run, workers=2, progress=False)
    return {
        "made": [list(here.made), list(there.made)],
        "ok": whole.ok,
        "same": found == whole,
        "checked": checked.ok and len(heard["received"]) == 2 * len(received),
        "received": received,
    }


def kill_first(came):
    """Kill the first worker that is seen at work; what had come from any of them until then."""
    seen = {}

    def watch():
        while not (found := workers_on_ray("_piece")):
            time.sleep(0.01)
        os.kill(found[0], signal.SIGKILL)
        seen["killed"], seen["came"] = 1, len(came)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return seen, thread


def scene_lost(folder):
    """A worker is killed in the midst of plans, and one in the midst of an audit."""
    heard = {"received": [], "stretches": [], "under_way": [], "shown": []}
    listen(heard)
    run = packed_run(folder)
    whole = run.audit(0, ROWS, progress=False)
    cache_in(folder, "cache-ray")
    plans, thread = kill_first(heard["received"])
    prepare_run(run.describe(), epochs=2, workers=2, progress=False)
    thread.join(60)
    heard["received"].clear()
    audit, thread = kill_first(heard["received"])
    found = audit_run(run, 0, ROWS, workers=2, progress=False)
    thread.join(60)
    cache_in(folder, "cache-local")
    prepare_run(run.describe(), epochs=2, executor="local", progress=False)
    return {"plans": plans, "audit": audit, "same": found == whole}


def scene_address(folder):
    """A cluster that is already there, named by its address."""
    import ray
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **quiet})
    address, told = cluster.address, []
    quick = {name: value for name, value in OPTIONS.items() if name != "transform"}
    inputs = inputs_of(folder)
    tl.build(inputs, folder / "address", executor=f"ray:{address}", **quick)
    left_running = ray.is_initialized()
    ray.init(address=address, log_to_driver=False)
    host, _, port = address.rpartition(":")
    good = ["ray", "ray:auto", f"ray:{address}", f"ray:{socket.gethostbyname(host)}:{port}"]
    verified = [check_store(folder / "address", executor=one).ok for one in good]
    for other in (f"ray:{host}:1", "ray:local"):
        try:
            check_store(folder / "address", executor=other)
        except tl.ConfigError as error:
            told.append(str(error))
    still = ray.is_initialized()
    ray.shutdown()
    cluster.shutdown()
    try:
        check_store(folder / "address", executor=f"ray:{address}")
    except tl.WorkerError as error:
        told.append(str(error))
    return {
        "address": address,
        "left_running": left_running,
        "still": still,
        "verified": verified,
        "told": told,
    }


# -- errors ---------------------------------------------------------------------------------


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
    faulthandler.dump_traceback_later(900)  # where it hangs, should it ever
    scene, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(globals()[f"scene_{scene}"](folder)))
