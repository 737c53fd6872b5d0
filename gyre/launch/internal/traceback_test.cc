// Of forty lines of a traceback one is the user's own: the closing block must find that one.
#include "gyre/launch/internal/traceback.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace gyre::launch {
namespace {

TracebackReader read(const std::string& text) {
  TracebackReader reader;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) reader.add(line);
  return reader;
}

// Our own longest messages, of deadlocks and disagreements, end with what to do.
TEST(traceback, a_long_message_is_kept_up_to_its_advice_and_a_flood_is_cut) {
  const auto error_of = [](const std::string& message) {
    return read("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\n" + message + "\n")
        .latest()
        ->error;
  };
  const std::string advice = "MismatchError: " + std::string(2'000, 'x') + ". Call it on all ranks";
  EXPECT_EQ(error_of(advice), advice);
  EXPECT_LT(error_of("ValueError: " + std::string(100'000, 'x')).size(), 5'000U);
}

TEST(traceback, the_innermost_frame_outside_gyre_and_torch_is_the_users) {
  const TracebackReader reader = read(R"([W gyre] slow
Traceback (most recent call last):
  File "/home/ada/train.py", line 40, in <module>
    main()
  File "/home/ada/train.py", line 31, in main
    loss.backward()
    ~~~~~~~~~~~~~^^
  File "/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", line 630, in backward
    torch.autograd.backward(
  File "/home/ada/gyre/python/gyre/torch/optimizer.py", line 7, in hook
    self.exchange.wait()
gyre.errors.PeerLostError: rank 1 is gone
one more line
)");
  ASSERT_TRUE(reader.latest());
  EXPECT_EQ(reader.latest()->place, "/home/ada/train.py:31, in main");
  EXPECT_EQ(reader.latest()->source, "loss.backward()");
  EXPECT_EQ(reader.latest()->error, "gyre.errors.PeerLostError: rank 1 is gone");
  EXPECT_EQ(reader.lines_since(), 1U);
  EXPECT_FALSE(reader.inside());
}

TEST(traceback, a_script_of_a_package_is_found_where_nothing_is_the_users) {
  const TracebackReader reader = read(R"(Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/usr/lib/python3.11/runpy.py", line 86, in _run_code
    exec(code, run_globals)
  File "/usr/lib/python3/dist-packages/recipes/train.py", line 5, in <module>
    1 / 0
ZeroDivisionError: division by zero
)");
  EXPECT_EQ(reader.latest()->place, "/usr/lib/python3/dist-packages/recipes/train.py:5");
  EXPECT_EQ(reader.latest()->source, "1 / 0");
}

TEST(traceback, of_chained_exceptions_the_last_counts_and_a_place_is_kept) {
  const std::string first = R"(Traceback (most recent call last):
  File "train.py", line 3, in load
    open(path)
FileNotFoundError: no such file

During handling of the above exception, another exception occurred:

)";
  const TracebackReader own = read(first + R"(Traceback (most recent call last):
  File "train.py", line 5, in load
    raise ValueError(path)
ValueError: data
)");
  EXPECT_EQ(own.latest()->place, "train.py:5, in load");
  EXPECT_EQ(own.latest()->error, "ValueError: data");
  const TracebackReader librarys = read(first + R"(Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 1038, in _bootstrap_inner
    self.run()
RuntimeError: again
)");
  EXPECT_EQ(librarys.latest()->place, "train.py:3, in load");
  EXPECT_EQ(librarys.latest()->error, "RuntimeError: again");
}

TEST(traceback, torchs_rank_in_front_of_each_line_is_left_out) {
  const TracebackReader reader = read(R"([rank12]: Traceback (most recent call last):
[rank12]:   File "train.py", line 4, in <module>
[rank12]:     1 / 0
[rank12]:     ~~^~~
[rank12]: ZeroDivisionError: division by zero
)");
  EXPECT_EQ(reader.latest()->place, "train.py:4");
  EXPECT_EQ(reader.latest()->source, "1 / 0");
  EXPECT_EQ(reader.latest()->error, "ZeroDivisionError: division by zero");
}

TEST(traceback, a_syntax_error_has_a_place_without_a_function) {
  const TracebackReader reader = read(R"(Traceback (most recent call last):
  File "/home/ada/train.py", line 2, in <module>
    import model
  File "/home/ada/model.py", line 9
    def forward(self
               ^
SyntaxError: '(' was never closed
)");
  EXPECT_EQ(reader.latest()->place, "/home/ada/model.py:9");
  EXPECT_EQ(reader.latest()->source, "def forward(self");
}

TEST(traceback, what_a_dataloaders_worker_raised_is_the_cause) {
  const TracebackReader reader = read(R"(Traceback (most recent call last):
  File "/home/ada/train.py", line 8, in <module>
    for batch in loader:
  File "/opt/venv/lib/python3.12/site-packages/torch/_utils.py", line 750, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/torch/utils/data/_utils/worker.py", line 358, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/ada/data.py", line 4, in __getitem__
    raise ValueError("bad image")
ValueError: bad image
)");
  EXPECT_EQ(reader.latest()->place, "/home/ada/data.py:4, in __getitem__");
  EXPECT_EQ(reader.latest()->error, "ValueError: bad image");
}

TEST(traceback, a_child_that_imports_the_script_again_is_noticed) {
  const std::string child = R"(Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 291, in _fixup_main_from_path
    main_content = runpy.run_path(main_path,
  File "/home/ada/train.py", line 4, in <module>
    hvd.init()
gyre.errors.UnsupportedError: This process is a child of rank 0
)";
  EXPECT_TRUE(read(child).child_failed_to_import());
  const TracebackReader both = read(child + "Traceback (most recent call last):\nRuntimeError: a worker exited\n");
  EXPECT_TRUE(both.child_failed_to_import());
  EXPECT_EQ(both.latest()->error, "RuntimeError: a worker exited");
  EXPECT_FALSE(read("Traceback (most recent call last):\nRuntimeError: a worker exited\n").child_failed_to_import());
}

// Ctrl-C between the call of a function and its first instruction.
TEST(traceback, an_empty_line_of_marks_does_not_end_it) {
  const TracebackReader reader = read(R"(Traceback (most recent call last):
  File "/home/ada/train.py", line 35, in <module>
    model.fit(data)
  File "/usr/lib/python3.11/inspect.py", line 3032, in parameters
    @property

KeyboardInterrupt
)");
  ASSERT_TRUE(reader.latest());
  EXPECT_EQ(reader.latest()->error, "KeyboardInterrupt");
  EXPECT_EQ(reader.latest()->place, "/home/ada/train.py:35");
  EXPECT_FALSE(
      read("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n\nsomething else\n").latest());
}

TEST(traceback, one_that_has_not_ended_is_no_error_yet) {
  const TracebackReader reader = read("Traceback (most recent call last):\n  File \"train.py\", line 1, in f\n");
  EXPECT_TRUE(reader.inside());
  EXPECT_FALSE(reader.latest());
}

TEST(traceback, what_is_no_traceback_is_passed_over) {
  const TracebackReader reader = read("  File \"train.py\", line 1, in f\nValueError: printed by hand\n\n");
  EXPECT_FALSE(reader.inside());
  EXPECT_FALSE(reader.latest());
  const TracebackReader odd =
      read("Traceback (most recent call last):\n  File \"x\"\n  File \"\", line , in \n\nend\n");
  EXPECT_FALSE(odd.inside());
  EXPECT_FALSE(odd.latest());
}

// A tf.function is traced in a rewritten form; the line that calls it is the user's.
TEST(traceback, functions_that_tensorflow_has_rewritten_are_not_the_users) {
  const TracebackReader reader = read(R"(Traceback (most recent call last):
  File "/home/ada/train.py", line 15, in <module>
    step(batch)
  File "/tmp/__autograph_generated_file1x2y.py", line 48, in tf__step
    retval_ = ag__.converted_call(ag__.ld(tape).gradient, (ag__.ld(loss),), None, fscope)
  File "/home/ada/gyre/python/gyre/tensorflow/_tape.py", line 37, in gradient
    return self._reduce(sources, own)
gyre.errors.MismatchError: 'beta:0' has a gradient on rank 0, and none on rank 1
)");
  ASSERT_TRUE(reader.latest());
  EXPECT_EQ(reader.latest()->place, "/home/ada/train.py:15");
  EXPECT_EQ(reader.latest()->source, "step(batch)");
}

}  // namespace
}  // namespace gyre::launch
