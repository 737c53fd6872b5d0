"""The size rule stands on finding where C++ functions begin and end; these are the shapes our format makes of them."""

import pytest
from cpp_functions import functions

SHAPES = {
    "a plain function": ("int add(int a, int b) {\n  return a + b;\n}\n", [("add", 1, 3)]),
    "one on one line": ("int one() { return 1; }\n", [("one", 1, 1)]),
    "a declaration is none": ("int one();\n", []),
    "methods in a class in a namespace": (
        "namespace gyre {\nclass Ring : public Base {\n public:\n  int size() const { return size_; }\n\n"
        " private:\n  int size_{0};\n};\n}  // namespace gyre\n",
        [("size", 4, 4)],
    ),
    "a constructor with braced initialisers": (
        "Ring::Ring(int rank) : rank_{rank}, names_({1, 2}), size_{4} {\n  check();\n}\n",
        [("Ring::Ring", 1, 3)],
    ),
    "a long list of parameters": ("int far(int a,\n        int b) {\n  return a;\n}\n", [("far", 1, 4)]),
    "a template": (
        "template <typename T, std::enable_if_t<(sizeof(T) > 1)>* = nullptr>\nT twice(T x) {\n  return x + x;\n}\n",
        [("twice", 1, 4)],
    ),
    "a struct as a result": ("struct stat look(int fd) {\n  return {};\n}\n", [("look", 1, 3)]),
    "control flow and lambdas inside": (
        "void walk() {\n  for (int i = 0; i < 3; ++i) {\n    if (i) {\n    }\n  }\n"
        "  auto f = [&](int x) {\n    use(x);\n  };\n}\n",
        [("walk", 1, 9)],
    ),
    "tables are none": (
        "constexpr Row kRows[] = {\n    {1, f(2)},\n    {3, 4},\n};\nint one() { return 1; }\n",
        [("one", 5, 5)],
    ),
    "tables made by a call are none": ("constexpr auto kRows = std::to_array<Row>({\n    {1, 2},\n});\n", []),
    "an enumeration is none": ("enum class Kind : std::uint8_t { kOne, kTwo };\n", []),
    "an annotated class": (
        'class GYRE_CAPABILITY("mutex") Mutex {\n public:\n  void lock() GYRE_ACQUIRE() { m_.lock(); }\n};\n',
        [("lock", 3, 3)],
    ),
    "a test": ("TEST(Ring, sums_in_rank_order) {\n  check();\n}\n", [("Ring.sums_in_rank_order", 1, 3)]),
    "braces in text and comments": (
        'int f() {  // {\n  /* { */\n  say("{ \\" {", \'{\', R"x({ " {)x");\n  return 1\'000;\n}\n'
        "int g() { return 2; }\n",
        [("f", 1, 5), ("g", 6, 6)],
    ),
    "braces in macros": (
        "#define OPEN(x) \\\n  if (x) {      \\\n    do_it();\nint f() {\n  return 1;\n}\n",
        [("f", 4, 6)],
    ),
    "operators": ("bool operator==(const A& a, const A& b) { return true; }\n", [("operator==", 1, 1)]),
    "an extern C block": ('extern "C" {\nint f() { return 1; }\n}\n', [("f", 2, 2)]),
    "an anonymous namespace": ("namespace {\n\nint f() {\n  return 1;\n}\n\n}  // namespace\n", [("f", 3, 5)]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_functions_are_found_with_their_lines(shape: str) -> None:
    text, expected = SHAPES[shape]
    assert functions(text) == expected


@pytest.mark.parametrize("text", ["int f() {\n", "}\n"])
def test_unbalanced_braces_are_an_error_not_a_guess(text: str) -> None:
    with pytest.raises(ValueError, match="brace"):
        functions(text)
