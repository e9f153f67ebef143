"""Counts of the package's structure: `python -m tools.architecture [ROOT ...] [--json FILE]`.

Standard library only; nothing is imported from the packages that are counted. The rules:

module       a .py file, `__init__.py` left out; folders of SKIPPED (tests, vendored code) are not read.
entry        a module that is one of many of its kind, so that their number measures features and not structure:
             a CLI verb, anything in a folder `zoo`, and in the folders of CATALOGUES the modules whose classes a
             registry (catalogue.py, registry.py) names or a decorator register_... adds; without such a file, those
             whose classes the folder's `__init__.py` imports, but for base.py, _utils and _models.
lines        of all .py files, `__init__.py` too. code = lines that hold more than blanks, comments and docstrings.
function     def or async def, methods and nested ones too; from `def` to its last line, docstring included.
comment      a line with a comment, also behind code; noqa, type: ignore and other pragmas do not count.
participle   a module, class or function whose name ends in a word in -ing or -ed of at least 5 letters that is not in
             EXCEPTIONS, or in a word of IRREGULAR, unless the name begins with a word of VERBS. Dunders do not count.
vague        a variable or argument whose whole name is a word of VAGUE.
own import   of a module of the package, also import_module("its.name"). Names that an `__init__.py` only passes on are
             followed to where they are defined. `if TYPE_CHECKING:` does not count.
cycle        a strongly connected component of two or more modules, in-function imports included.
one importer a module that exactly one other module imports, where that one is no registry, `__init__` or `main`.
"""

import argparse
import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "src" / "benfourier"
SKIPPED = {"tests", "test", "testing", "_vendor", "vendored", "__pycache__"}
REGISTRIES = {"catalogue", "registry", "__init__", "main", "__main__"}
CATALOGUES = {"attacks", "attack", "detectors", "detector", "methods", "attr"}
VAGUE = frozenset("found told kept made given wanted taken".split())
PRAGMA = re.compile(r"#\s*(noqa|type:|pragma|pylint|fmt:|mypy|ruff|isort|pyright|nosec|!)", re.IGNORECASE)
EXCEPTIONS = frozenset(
    """string substring thing king ring wing spring ceiling morning evening during nothing something anything everything
    training setting mapping padding embedding encoding pooling scaling sampling heading typing formatting warning
    logging building binding missing timing ranking drawing squeezing
    ing ed bed red fed led seed need speed feed weed breed embed shed hundred indeed exceed succeed proceed naked sacred
    linked nested""".split()
)
IRREGULAR = frozenset(
    """found told kept made taken given said drawn shown begun gone heard held struck chosen written known seen left
    sent met thrown broken hidden built brought bought caught taught thought meant felt lost sold worn torn spoken
    """.split()
)
VERBS = frozenset(
    """is has had was are be can should must may will on if not no raise check assert get set make do did ensure require
    add remove mark count skip test handle log try find list warn drop keep refuse fill""".split()
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Module:
    """One file: its name, its text and tree, and what it imports."""

    name: str
    path: Path
    tree: ast.Module
    text: str
    top: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    typing: set[str] = field(default_factory=set)
    inner_statements: int = 0
    re_exports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name: (module, name there)

    @property
    def stem(self) -> str:
        """File name without its ending."""
        return self.path.stem

    @property
    def package(self) -> str:
        """Dotted name of the folder."""
        return self.name if self.stem == "__init__" else self.name.rpartition(".")[0]

    @property
    def imports(self) -> set[str]:
        """Own modules that it imports when it runs."""
        return self.top | self.inner

    @property
    def length(self) -> int:
        """Lines of the file."""
        return len(self.text.splitlines())


def load(root: Path) -> dict[str, Module]:
    """Returns all modules below a package's folder by dotted name; a package's own name is its `__init__`."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if SKIPPED & set(parts[1:]):
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8", errors="replace")
        modules[name] = Module(name, path, ast.parse(text), text)
    for module in modules.values():
        _collect_imports(module, modules)
    for module in modules.values():
        for place in ("top", "inner", "typing"):
            homes = {_home(target, modules) for target in getattr(module, place)}
            setattr(module, place, homes - {module.name})
    return modules


def _collect_imports(module: Module, modules: Mapping[str, Module]) -> None:
    """Fills in what a module imports: at its top, in functions, for types only."""

    def visit(node: ast.AST, place: str) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            targets = _targets(node, module, modules)
            getattr(module, place).update(targets)
            module.inner_statements += place == "inner" and bool(targets)
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                visit(statement, "typing")
            for statement in node.orelse:
                visit(statement, place)
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if name in modules:
                getattr(module, place).add(name)
                module.inner_statements += place == "inner"
        inside = isinstance(node, (*FUNCTIONS, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, "inner" if inside and place != "typing" else place)

    visit(module.tree, "top")


def _targets(node: ast.Import | ast.ImportFrom, module: Module, modules: Mapping[str, Module]) -> set[str]:
    """Own modules that a statement names, as "module" or "module:name"."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in modules}
    base = node.module or ""
    if node.level:
        parts = module.package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
    if base not in modules:
        return set()
    targets = set()
    for alias in node.names:
        if f"{base}.{alias.name}" in modules:
            targets.add(f"{base}.{alias.name}")
            continue
        module.re_exports.setdefault(alias.asname or alias.name, (base, alias.name))
        targets.add(f"{base}:{alias.name}")
    return targets


def _home(target: str, modules: Mapping[str, Module]) -> str:
    """The module that defines a target, followed through packages that only pass it on."""
    name, _, attribute = target.partition(":")
    visited = set()
    while attribute and name not in visited and modules[name].stem == "__init__":
        if attribute not in modules[name].re_exports:
            break
        visited.add(name)
        name, attribute = modules[name].re_exports[attribute]
        if f"{name}.{attribute}" in modules:
            return f"{name}.{attribute}"
    return name


def line_kinds(module: Module) -> tuple[int, int]:
    """Returns lines of code and lines with comments."""
    docstrings: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and node.body:
            first = node.body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    comments: set[int] = set()
    idle = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            if not PRAGMA.match(token.string):
                comments.add(token.start[0])
        elif token.type not in idle:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings), len(comments)


def participle(name: str) -> str:
    """Returns "regular", "irregular" or "" for the last word of a name that does not begin with a verb."""
    words = [word.lower() for word in WORD.findall(name)]
    if not words or (name.startswith("__") and name.endswith("__")) or (len(words) > 1 and words[0] in VERBS):
        return ""
    last = words[-1]
    if len(last) >= 5 and last.endswith(("ing", "ed")) and last not in EXCEPTIONS:
        return "regular"
    return "irregular" if last in IRREGULAR else ""


def names(modules: Mapping[str, Module]) -> tuple[int, dict[str, list[str]]]:
    """Returns the number of modules, classes and functions, and those whose name is a participle, by kind."""
    total = 0
    participles: dict[str, list[str]] = {"regular": [], "irregular": [], "": []}
    for name, module in modules.items():
        nodes = [node for node in ast.walk(module.tree) if isinstance(node, (ast.ClassDef, *FUNCTIONS))]
        labels = [] if module.stem == "__init__" else [(module.stem, name)]
        labels += [(node.name, f"{name}:{node.name}") for node in nodes]
        total += len(labels)
        for label, place in labels:
            participles[participle(label)].append(place)
    return total, participles


def vague_names(modules: Mapping[str, Module]) -> list[str]:
    """Returns variables and arguments named by a word of VAGUE, once per function or module that has them."""
    places: set[str] = set()
    for name, module in modules.items():
        for scope in [module.tree, *(node for node in ast.walk(module.tree) if isinstance(node, FUNCTIONS))]:
            label = getattr(scope, "name", "")
            places.update(f"{name}:{label}:{word}" for word in _assigned(scope) & VAGUE)
    return sorted(places)


def _assigned(scope: ast.AST) -> set[str]:
    """Names that a scope binds itself; those of functions inside it are their own."""
    bound: set[str] = set()
    nodes = list(ast.iter_child_nodes(scope))
    while nodes:
        node = nodes.pop()
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        nodes.extend(ast.iter_child_nodes(node))
    return bound


def entries(modules: Mapping[str, Module]) -> set[str]:
    """Returns the modules that are one of many of their kind."""
    special = {name for name in modules if "zoo" in name.split(".")[:-1]}
    for name, module in modules.items():
        folder = module.package.split(".")
        if set(folder) & CATALOGUES and _registers(module):
            special.add(name)
        if folder[-1] == "cli" and module.stem == "main":
            special |= {home for label, (home, _) in module.re_exports.items() if home == f"{module.package}.{label}"}
        if folder[-1] in CATALOGUES:
            special |= _catalogue_entries(module, modules)
    shared = {"base", "_utils", "_models"}
    return {name for name in special if modules[name].stem != "__init__" and not shared & set(name.split("."))}


def _registers(module: Module) -> bool:
    """True if one of its classes is decorated with register or register_something."""
    decorators = [d for node in module.tree.body if isinstance(node, ast.ClassDef) for d in node.decorator_list]
    calls = [d.func if isinstance(d, ast.Call) else d for d in decorators]
    labels = [
        d.attr if isinstance(d, ast.Attribute) else d.id for d in calls if isinstance(d, ast.Attribute | ast.Name)
    ]
    return any(label.split("_")[0] == "register" for label in labels)


def _catalogue_entries(module: Module, modules: Mapping[str, Module]) -> set[str]:
    """Modules whose classes a registry names, or which a folder without a registry passes on."""
    if module.stem in ("catalogue", "registry"):
        values = [node.value for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        used = {part.id for value in values if value for part in ast.walk(value) if isinstance(part, ast.Name)}
        return {home for label, (home, _) in module.re_exports.items() if label in used}
    registries = {f"{module.package}.catalogue", f"{module.package}.registry"}
    if module.stem != "__init__" or registries & modules.keys():
        return set()
    classes = [place for label, place in module.re_exports.items() if label[:1].isupper()]
    homes = {_home(f"{home}:{label}", modules) for home, label in classes}
    return {home for home in homes if home.startswith(f"{module.package}.")}


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Returns strongly connected components of two or more modules, largest first (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components = []
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        path = [(root, iter(sorted(edges[root])))]
        while path:
            node, rest = path[-1]
            target = next(rest, None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    start = stack.index(node)
                    components.append(sorted(stack[start:]))
                    del stack[start:]
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                path.append((target, iter(sorted(edges[target]))))
            elif target in stack:
                low[node] = min(low[node], index[target])
    return sorted((part for part in components if len(part) > 1), key=len, reverse=True)


def count(root: Path = ROOT) -> dict[str, Any]:
    """Returns all counts of one package; lists where a reader wants to know which."""
    modules = load(root)
    own = {name: module for name, module in modules.items() if module.stem != "__init__"}
    nodes = [node for module in modules.values() for node in ast.walk(module.tree) if isinstance(node, FUNCTIONS)]
    lengths = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes) or [0]
    code, comments = map(sum, zip(*(line_kinds(module) for module in modules.values()), strict=True))
    total, participles = names(modules)
    single = _one_importer(modules)
    longest = max(own.values(), key=lambda module: module.length)
    return {
        "package": root.name,
        "modules": len(own),
        "modules without entries": len(own) - len(entries(modules)),
        "lines": sum(module.length for module in modules.values()),
        "longest module": longest.length,
        "longest module's name": longest.name,
        "kernels lines": sum(module.length for module in modules.values() if ".kernels" in module.name),
        "function length, median": statistics.median(lengths),
        "function length, p90": lengths[int(0.9 * (len(lengths) - 1))],
        "modules with one importer": sorted(single),
        "modules with one importer, %": round(100 * len(single) / len(own), 1),
        "class names used twice": _classes_twice(modules),
        "participles as names": participles["regular"],
        "participles as names, per 100": round(100 * len(participles["regular"]) / total, 1),
        "irregular participles as names": participles["irregular"],
        "participles as modules": [
            place for kind in ("regular", "irregular") for place in participles[kind] if ":" not in place
        ],
        "vague variables": vague_names(modules),
        "in-function own imports": sum(module.inner_statements for module in modules.values()),
        "import cycles": [len(part) for part in cycles({name: module.imports for name, module in modules.items()})],
        "comment lines per 100 code": round(100 * comments / code, 1),
        "packages": _packages(root, modules),
    }


def _one_importer(modules: Mapping[str, Module]) -> list[str]:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, module in modules.items():
        for target in module.imports:
            importers[target].add(name)
    single = {name: min(importers[name]) for name, module in modules.items() if len(importers[name]) == 1}
    own = {name for name in single if modules[name].stem != "__init__"}
    return [name for name in own if modules[single[name]].stem not in REGISTRIES]


def _classes_twice(modules: Mapping[str, Module]) -> list[str]:
    """Public classes at the top of two or more modules."""
    homes = Counter(
        node.name
        for module in modules.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, number in homes.items() if number > 1)


def _packages(root: Path, modules: Mapping[str, Module]) -> dict[str, dict[str, int]]:
    """Modules and lines of each first-level folder; "." for files beside them."""
    rows: dict[str, dict[str, int]] = defaultdict(lambda: {"modules": 0, "lines": 0})
    for module in modules.values():
        parts = module.path.relative_to(root).parts
        row = rows[parts[0] if len(parts) > 1 else "."]
        row["modules"] += module.stem != "__init__"
        row["lines"] += module.length
    return {name: rows[name] for name in sorted(rows)}


def number(value: Any) -> float:
    """Returns a count as one number: lists by their length."""
    return len(value) if isinstance(value, list) else value


def markdown(counts: Sequence[Mapping[str, Any]]) -> str:
    """Returns the counts side by side, as a table of Markdown."""
    shown = [name for name in counts[0] if name not in ("package", "packages")]
    lines = [["count", *(str(each["package"]) for each in counts)], ["---", *("---:" for _ in counts)]]
    lines += [[name, *(_cell(each[name]) for each in counts)] for name in shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, int) for part in value):
        return " ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else f"{number(value):g}"


def main(arguments: list[str] | None = None) -> int:
    """Prints the table, and writes all counts and lists to a file if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.architecture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roots", nargs="*", type=Path, default=[ROOT], help="folders of packages")
    parser.add_argument("--json", type=Path, help="write all counts and lists to this file")
    options = parser.parse_args(arguments)
    counts = [count(root.resolve()) for root in options.roots]
    print(markdown(counts))  # noqa: T201
    for name, row in counts[0]["packages"].items():
        print(f"{name:12} {row['modules']:4} modules {row['lines']:6} lines")  # noqa: T201
    if options.json is not None:
        options.json.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
