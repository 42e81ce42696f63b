"""What the conformance cases share: how a case is declared, run and reported, and how the clients' tools are had and called."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

_cases = []


def case(function):
    """Declares a case; its name is the function's. A case passes when it returns."""
    _cases.append(function)
    return function


def own_broker(function):
    """A case that needs a broker of ours: left out when the broker under test is somebody else's."""
    function.own_broker = True
    return case(function)


class Failed(Exception):
    pass


def eq(got, want, what="value"):
    if got != want:
        raise Failed(f"{what}: got {str(got)[:400]!r}, want {str(want)[:400]!r}")


def has(text, pattern):
    if not re.search(pattern, text, re.M):
        raise Failed(f"nothing matches /{pattern}/ in {text[-600:]!r}")


def hasnt(text, pattern):
    if re.search(pattern, text, re.M):
        raise Failed(f"unwanted /{pattern}/ in {text[-600:]!r}")


def until(seconds, what, check):
    """Waits for `check()` to be true, at most `seconds`."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def sh(*command, stdin=None, timeout=60, ok=True, env=None):
    """Runs a command; returns (stdout, stderr, status). `ok`: its status must be 0."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(command, input=data if data is not None else b"", capture_output=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"over {timeout} s: {' '.join(map(str, command))[:200]}: {(e.stderr or b'')[-300:]!r}") from None
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if ok and done.returncode != 0:
        raise Failed(f"status {done.returncode}: {' '.join(map(str, command))[-200:]}: {(err or out)[-500:]}")
    return out, err, done.returncode


class World:
    """The broker under test and the clients' tools."""

    def __init__(self, bootstrap, work, broker=None):
        self.bootstrap, self.work, self.broker = bootstrap, work, broker
        self.run = f"{int(time.time()) % 100000}"
        self.python = work / "venv/bin/python"
        self.go = work / "go-client"
        self.jars = work / "jars"
        self.here = HERE

    def topic(self, name):
        return f"{name}-{self.run}"

    # kcat -------------------------------------------------------------------------------------------------------
    def kcat(self, *args, stdin=None, timeout=30, ok=True):
        env = dict(os.environ, KCAT_CONFIG="/dev/null", XDG_CONFIG_HOME="/nonexistent")
        return sh("kcat", "-b", self.bootstrap, *args, stdin=stdin, timeout=timeout, ok=ok, env=env)[0]

    # Kafka's own tools --------------------------------------------------------------------------------------------
    def java(self, name, *args, stdin=None, timeout=90, ok=True):
        """Standard output and standard error of one of Kafka's tools, and its status."""
        return sh(*self.java_command(name, *args), stdin=stdin, timeout=timeout, ok=ok)

    def java_command(self, name, *args):
        return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
                f"-XX:SharedArchiveFile={self.work / 'tools.jsa'}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{self.jars}/*", name, *args]

    def tool(self, name, *args, **how):
        """Standard output of a tool that talks to the broker; `name` is relative to org.apache.kafka.tools."""
        return self.java(f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap, *args, **how)[0]

    def tool_says(self, name, *args, **how):
        """Everything a tool prints, whatever its status."""
        out, err, _ = self.java(f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap, *args, ok=False, **how)
        return out + err

    def create(self, name, partitions=1, **configs):
        args = [x for k, v in configs.items() for x in ("--config", f"{k.replace('_', '.')}={v}")]
        self.tool("TopicCommand", "--create", "--topic", name, "--partitions", str(partitions), *args)

    def offsets(self, topic, *args):
        """GetOffsetShell's answer: partition -> offset."""
        out = self.tool("GetOffsetShell", "--topic", topic, *args)
        rows = [line.split(":") for line in out.split()]
        return {int(r[1]): int(r[2]) for r in rows if len(r) == 3 and r[2] != ""}

    def running(self, name, *args):
        """A tool of Kafka's that goes on until it is stopped; see Running."""
        command = self.java_command(f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap, *args)
        return Running(command, self.work / "running.log")

    # client libraries ---------------------------------------------------------------------------------------------
    def client(self, library, verb, topic, *args, timeout=60, ok=True):
        """One of our small programs over a client library; both speak the same command line (client.py, go/main.go)."""
        program = [str(self.go)] if library == "franz-go" else [str(self.python), str(HERE / "client.py"), library]
        return sh(*program, verb, self.bootstrap, topic, *map(str, args), timeout=timeout, ok=ok)[0]


class Running:
    """A process whose lines of output are read as they come. Used with `with`, it does not outlive its case."""

    def __init__(self, command, errors):
        self.lines = []
        with open(errors, "ab") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.process.kill()
        self.wait()

    def stop(self):
        """As a user stops it; waits for its end."""
        self.process.terminate()
        self.wait()

    def wait(self, seconds=30):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"it does not end; last lines {self.lines[-3:]}") from None
        self.reader.join(10)


class Broker:
    """A ringmain process in a directory of its own."""

    def __init__(self, binary, directory, *args):
        self.binary, self.directory, self.args = binary, directory, args
        self.port, self.admin = free_port(), free_port()
        self.process = None

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        log = open(self.directory.parent / f"{self.directory.name}.log", "ab")
        self.process = subprocess.Popen(
            [self.binary, "start", "--data-dir", self.directory, "--listen", self.bootstrap,
             "--admin-listen", f"127.0.0.1:{self.admin}", *self.args], stdout=log, stderr=log)
        # Not by its port: for a moment that may still be a killed process's.
        until(20, "the broker is ready", lambda: self.died() or answers(f"http://127.0.0.1:{self.admin}/health/ready"))
        return self

    def died(self):
        if self.process.poll() is not None:
            tail = (self.directory.parent / f"{self.directory.name}.log").read_text(errors="replace")[-500:]
            raise Failed(f"the broker ended with {self.process.returncode}: {tail}")
        return False

    def stop(self):
        self.process.terminate()
        eq(self.process.wait(20), 0, "status of a clean stop")

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(url):
    """Whether this URL is answered with success."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
        return True
    except OSError:
        return False


def prepare(work):
    """Installs what the cases need, once, from the registries: kcat, a venv, the Go client, Kafka's jars."""
    work.mkdir(parents=True, exist_ok=True)
    if not shutil.which("kcat"):
        sh("apt-get", "update", "-qq", timeout=300)
        sh("apt-get", "install", "-y", "-qq", "kcat", timeout=300)
    wanted = (HERE / "requirements.txt").read_text()
    stamp = work / "venv/requirements"
    if not stamp.exists() or stamp.read_text() != wanted:
        sh(sys.executable, "-m", "venv", "--clear", work / "venv", timeout=120)
        sh(work / "venv/bin/pip", "-q", "install", "-r", HERE / "requirements.txt", timeout=400)
        stamp.write_text(wanted)
    sh("go", "build", "-C", HERE / "go", "-o", work / "go-client", ".", timeout=500)
    if not (work / "jars/.complete").exists():
        sh("mvn", "-q", "-B", "-f", HERE / "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars",
           "-DincludeScope=runtime", timeout=500)
        (work / "jars/.complete").touch()
    if not (work / "tools.jsa").exists():
        # A shared archive of the tools' classes: a JVM's start is most of what a tool costs.
        subprocess.run(["java", "-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={work}/tools.jsa", "-Xlog:cds=off",
                        "-cp", f"{work}/jars/*", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server",
                        "127.0.0.1:1", "--list", "--command-config", "/dev/null"], capture_output=True, timeout=120)


def run(world, only=None):
    """Runs the cases; returns (passed, failed)."""
    passed, failed = 0, 0
    for function in _cases:
        name = function.__name__
        if (only and not re.search(only, name)) or (hasattr(function, "own_broker") and not world.broker):
            continue
        began = time.monotonic()
        try:
            function(world)
            passed += 1
            print(f"pass  {name}  {time.monotonic() - began:.1f} s", flush=True)
        except Failed as e:
            failed += 1
            print(f"FAIL  {name}  {time.monotonic() - began:.1f} s: {e}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}: {traceback.format_exc()}", flush=True)
    return passed, failed


def digest(text):
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()
