// What the loader adds to the work that nobody can avoid: samples per second of CosmoFlow's volumes, read by
// gyre::data::Loader as int16 and as float32 log(1 + x), beside a bare loop over the same files that reads,
// decompresses and compares checksums.
//
//   python -m gyre.datasets cosmo --out out/cosmo --train 32 --validation 1 --size 128
//   build/release/bench/micro/loader_bench out/cosmo/train 128 [THREADS] [ROUNDS]
//
// The three take turns, one epoch each, and the medians of the rounds are printed. All run on as many threads (default:
// all cores), with the files in the page cache.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/cores.h"
#include "gyre/data/loader.h"
#include "gyre/data/record_set.h"

namespace gyre::data {
namespace {

constexpr std::uint64_t kBatch = 4;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& work) {
  const auto began = SteadyClock::now();
  work();
  return std::chrono::duration<double>(SteadyClock::now() - began).count();
}

void bare_loop(const std::shared_ptr<const RecordSet>& set, int threads) {
  std::atomic<std::uint64_t> next{0};
  const auto work = [&] {
    RecordReader reader(*set, nullptr);
    StageTimes times;
    for (std::uint64_t i = next++; i < set->count(); i = next++) static_cast<void>(reader.read(i, times));
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

Field volume(std::uint64_t side, ElementType type) {
  return {.name = "x",
          .stored = ElementType::kInt16,
          .type = type,
          .shape = {side, side, side, 4},
          .transform = type == ElementType::kInt16 ? ValueTransform::kNone : ValueTransform::kLog1p};
}

int run(const std::string& folder, std::uint64_t side, int threads, int rounds) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().string());
  std::ranges::sort(names);
  const auto set = std::make_shared<const RecordSet>(names, open_local_file, RecordSetOptions{.records_per_file = 1});
  LoaderOptions options;
  options.sampling = {.batch_per_rank = kBatch};
  options.threads = threads;
  options.memory_budget_bytes = std::uint64_t{2} << 30;
  Loader int16(set, {volume(side, ElementType::kInt16)}, options);
  Loader float32(set, {volume(side, ElementType::kFloat32)}, options);
  std::vector<double> bare_rates;
  std::vector<double> int16_rates;
  std::vector<double> float32_rates;
  const auto epoch = [](Loader& loader, int round) {
    loader.start_epoch(static_cast<std::uint64_t>(round));
    while (loader.next()) {
    }
  };
  const auto samples = static_cast<double>(set->count());
  for (int round = 0; round <= rounds; ++round) {
    const double bare = seconds_of([&] { bare_loop(set, threads); });
    const double as_int16 = seconds_of([&] { epoch(int16, round); });
    const double as_float32 = seconds_of([&] { epoch(float32, round); });
    if (round == 0) continue;  // The page cache and the batches' memory are filled.
    bare_rates.push_back(samples / bare);
    int16_rates.push_back(samples / as_int16);
    float32_rates.push_back(samples / as_float32);
  }
  const double bare = median(bare_rates);
  fmt::print(
      "{} files, {} threads, {} rounds, samples per second: bare loop {:.1f}; int16 {:.1f} ({:.0f} %); "
      "float32 log1p {:.1f} ({:.0f} %)\n",
      names.size(), threads, rounds, bare, median(int16_rates), 100 * median(int16_rates) / bare, median(float32_rates),
      100 * median(float32_rates) / bare);
  return 0;
}

}  // namespace
}  // namespace gyre::data

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: loader_bench FOLDER SIDE [THREADS] [ROUNDS]\n");
    return 2;
  }
  return gyre::data::run(argv[1], std::strtoull(argv[2], nullptr, 10),
                         argc > 3 ? std::atoi(argv[3]) : gyre::usable_cores(), argc > 4 ? std::atoi(argv[4]) : 5);
}
