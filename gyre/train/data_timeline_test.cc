// A timeline that shows a step's gap must also say what the step waited for.
#include "gyre/train/data_timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/data/loader.h"
#include "gyre/engine/runtime.h"

namespace gyre::train {
namespace {

using std::chrono::milliseconds;

TEST(DataTimeline, a_wait_for_data_has_a_row_in_which_its_stages_fill_it) {
  const auto path =
      std::filesystem::temp_directory_path() / ("gyre_data_timeline_" + std::to_string(::getpid()) + ".json");
  {
    group::Job job;
    const auto runtime =
        std::make_unique<engine::Runtime>(group::join_group(job, {}, null_logger()), engine::RuntimeOptions{});
    engine::Engine& engine = runtime->engine();
    data::BatchWait wait{.epoch = 2, .step = 7, .began = SteadyClock::now(), .waited = milliseconds(10)};
    add_wait_to_timeline(engine, "data: train", wait);  // Nothing runs yet.
    engine.start_timeline(path, false);
    wait.began = SteadyClock::now();
    wait.waited_for.spent = {milliseconds(1), milliseconds(6), milliseconds(0), milliseconds(0), milliseconds(3)};
    wait.worked.spent = {milliseconds(2), milliseconds(12), milliseconds(0), milliseconds(0), milliseconds(6)};
    add_wait_to_timeline(engine, "data: train", wait);
    runtime->shutdown();
  }
  const auto events = nlohmann::json::parse(as_text(read_file(path, 1 << 20)));
  std::filesystem::remove(path);
  std::map<std::string, int> lasted_us;
  std::string detail;
  for (const auto& event : events) {
    if (event.at("ph") != "X") continue;
    lasted_us[event.at("name")] += event.at("dur").get<int>();
    if (event.contains("args")) detail = event.at("args").at("detail");
  }
  EXPECT_EQ(lasted_us.size(), 4U);
  EXPECT_NEAR(lasted_us["WAIT_FOR_DATA"], 10'000, 1);
  EXPECT_EQ(lasted_us["SOURCE"] + lasted_us["INFLATE"] + lasted_us["ASSEMBLE"], lasted_us["WAIT_FOR_DATA"]);
  EXPECT_EQ(detail,
            "epoch 2, step 7; the threads worked 20.000 ms: source 2.000, inflate 12.000, decode 0.000, transform "
            "0.000, assemble 6.000");
}

}  // namespace
}  // namespace gyre::train
