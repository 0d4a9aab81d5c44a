"""The package as a whole: documentation, stubs, names, and the script of the README."""
import ast
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import kvcast
from kvcast import _kvcast

ROOT = pathlib.Path(__file__).parents[2]
STUBS = pathlib.Path(__file__).parents[1] / "kvcast/_kvcast.pyi"


def public_members():
    for name in kvcast.__all__:
        value = getattr(kvcast, name)
        yield name, value
        if inspect.isclass(value) and not issubclass(value, Exception):
            for member in vars(value) if value is not kvcast.Subscriber else [*vars(value), *vars(_kvcast._Subscriber)]:
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getattr_static(value, member)


def test_all_lists_every_public_name():
    public = {name for name, value in vars(kvcast).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert set(kvcast.__all__) == public | {"__version__"} and kvcast.__all__ == sorted(kvcast.__all__)


def test_every_public_name_has_a_docstring():
    simple = {"closed", "worker", "reusable_tokens", "queue_s", "compute_s", "num_requests"}
    events = ("BlockStored.", "BlockRemoved.", "AllBlocksCleared.", "EventBatch.")  # the class describes the fields
    missing = [name for name, value in public_members()
               if not (inspect.getdoc(value) or "").strip() and name.rsplit(".")[-1] not in simple
               and not name.startswith(events) and name != "__version__"]
    assert missing == []


def test_the_stubs_have_exactly_the_names_of_the_module():
    stubs = {}
    for node in ast.parse(STUBS.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            stubs[node.name] = None
        if isinstance(node, ast.ClassDef):
            stubs[node.name] = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    module = {name: value for name, value in vars(_kvcast).items() if inspect.isclass(value) or inspect.isbuiltin(value)}
    assert set(stubs) == set(module)
    for name, members in stubs.items():
        if members is None or issubclass(module[name], Exception):
            continue
        real = {member for member in vars(module[name]) if not member.startswith("_")}
        assert {member for member in members if not member.startswith("_")} == real, name


def test_the_stubs_have_the_arguments_of_the_module():
    """pybind11 writes the signature into the first line of a docstring."""
    compared = 0
    for node in ast.walk(ast.parse(STUBS.read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        for item in node.body:
            if not isinstance(item, ast.FunctionDef) or item.decorator_list:
                continue
            value = vars(getattr(_kvcast, node.name)).get(item.name)
            doc = getattr(value, "__doc__", None) or ""
            if item.name.startswith("__") and item.name != "__init__" or not doc.startswith(item.name + "("):
                continue
            stubbed = [argument.arg for argument in item.args.args + item.args.kwonlyargs if argument.arg != "self"]
            signature = doc.split("\n")[0].split(" -> ")[0]
            real = [name for name in re.findall(r"[(,] (\w+): ", signature.replace("(self:", "( self:")) if name != "self"]
            if item.args.kwarg is None and "kwargs" not in signature:
                assert stubbed == real, f"{node.name}.{item.name}"
                compared += 1
    assert compared > 30


def test_errors_have_their_documented_bases():
    for name, bases in {"InvalidArgumentError": (ValueError,), "MalformedError": (ValueError,), "LimitError": (ValueError,),
                        "NotFoundError": (LookupError,), "StateError": (RuntimeError,), "ExhaustedError": (RuntimeError,),
                        "UnavailableError": (OSError,), "InternalError": (RuntimeError,),
                        "ClosedError": (kvcast.StateError,)}.items():
        assert issubclass(getattr(kvcast, name), (kvcast.KvcastError, *bases)[0]) and issubclass(getattr(kvcast, name), bases)


def test_the_version_is_that_of_the_project():
    assert f"VERSION {kvcast.__version__} " in (ROOT / "CMakeLists.txt").read_text()
    assert kvcast.KvIndexer.__module__ == "kvcast"


def test_the_script_of_the_readme():
    script = (ROOT / "examples/route_prompt.py").read_text()
    assert "```python\n" + script.split('"""\n', 1)[1] + "```" in (ROOT / "README.md").read_text()
    run = subprocess.run([sys.executable, str(ROOT / "examples/route_prompt.py")], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["('engine-0', 0) 64 exact", "('engine-1', 0) 256 exact", "best: ('engine-1', 0)"]


def test_the_interpreter_ends_with_open_objects():
    """Threads of open objects must not stop the interpreter from ending, and must not crash it."""
    code = ("import kvcast; p = kvcast.KvEventPublisher('tcp://127.0.0.1:0', 'tcp://127.0.0.1:0');"
            "s = kvcast.Subscriber(p.endpoint, p.replay_endpoint); r = kvcast.open_router({'sources': []});"
            "p.publish([]); print(s.get(60).seq)")
    run = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("call", ["next(reader)", "index.find_matches(token_ids=[1])"])
def test_the_interpreter_ends_while_daemon_threads_call(call):
    """While the interpreter deletes `Last`, the threads return from their calls and cannot get the GIL any more."""
    code = f"""
import sys, threading, kvcast
index = kvcast.KvIndexer()
publisher = kvcast.KvEventPublisher('tcp://127.0.0.1:0', 'tcp://127.0.0.1:0')
reader, other = [kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint) for _ in range(2)]

class Last:
    def __del__(self, publisher=publisher, other=other):
        for _ in range(50):
            publisher.publish([])
            other.get(60)
        print('deleted')

def work():
    while True:
        begun.set()
        {call}

sys.modules['last'] = Last()
for _ in range(4):
    begun = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    begun.wait()
"""
    run = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "deleted\n", "")
