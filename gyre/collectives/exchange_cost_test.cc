// Why: people choose machines by this model, and `gyre bench ps` prints it next to what it has measured.
#include "gyre/collectives/exchange_cost.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::collectives {
namespace {

constexpr double kMegabit = 1e6 / 8;
constexpr std::uint64_t kBytes = 10'000'000;

/// M / B is 1 second. Unless `block_bytes` says otherwise, blocks are so small that the last one's answers do not
/// count.
ExchangeSetting unit(int workers, std::uint64_t block_bytes = 4) {
  return {.workers = workers, .bytes = kBytes, .bytes_per_second = 10e6, .block_bytes = block_bytes};
}

double seconds(Architecture architecture, int servers, const ExchangeSetting& setting) {
  return exchange_cost(architecture, servers, setting).seconds;
}

TEST(ExchangeCost, follows_the_table_of_traffic) {
  // Of eight workers, in units of M / B.
  const ExchangeSetting setting = unit(8);
  EXPECT_NEAR(seconds(Architecture::kAllreduce, 0, setting), 1.75, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 1, setting), 8, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 2, setting), 4, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 4, setting), 2, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 8, setting), 1, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 16, setting), 1, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kColocatedServers, 8, setting), 1.75, 1e-3);
  // The only server sends and receives what the seven other workers' are, and its own worker nothing.
  EXPECT_NEAR(seconds(Architecture::kColocatedServers, 1, setting), 7, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kColocatedServers, 4, setting), 2.5, 1e-3);
}

TEST(ExchangeCost, doubles_where_answers_wait_for_everything) {
  // 4 MB at 100 Mbit/s among eight workers, push and pull not overlapped.
  ExchangeSetting setting{.workers = 8, .bytes = 4'000'000, .bytes_per_second = 100 * kMegabit};
  EXPECT_NEAR(seconds(Architecture::kAllreduce, 0, setting), 0.56, 1e-9);
  const std::pair<int, double> expected[] = {{1, 5.12}, {2, 2.56}, {4, 1.28}, {8, 0.64}};
  for (const auto& [servers, time] : expected) {
    setting.block_bytes = setting.bytes / static_cast<std::uint64_t>(servers);
    EXPECT_NEAR(seconds(Architecture::kDedicatedServers, servers, setting), time, 1e-9) << servers;
  }
  // At the workers both directions are busy anyway.
  EXPECT_NEAR(seconds(Architecture::kColocatedServers, 8, setting), 0.56, 1e-9);
}

TEST(ExchangeCost, counts_the_bytes_of_each_host) {
  const ExchangeSetting setting = unit(8);
  const ExchangeCost ring = exchange_cost(Architecture::kAllreduce, 0, setting);
  EXPECT_DOUBLE_EQ(ring.worker_host_bytes, 1.75 * 10e6);
  EXPECT_DOUBLE_EQ(ring.server_host_bytes, 0);
  const ExchangeCost dedicated = exchange_cost(Architecture::kDedicatedServers, 2, setting);
  EXPECT_DOUBLE_EQ(dedicated.worker_host_bytes, 10e6);
  EXPECT_DOUBLE_EQ(dedicated.server_host_bytes, 40e6);
  const ExchangeCost some = exchange_cost(Architecture::kColocatedServers, 2, setting);
  EXPECT_DOUBLE_EQ(some.worker_host_bytes, 10e6);
  EXPECT_DOUBLE_EQ(some.server_host_bytes, 40e6);
  const ExchangeCost all = exchange_cost(Architecture::kColocatedServers, 8, setting);
  EXPECT_DOUBLE_EQ(all.worker_host_bytes, 0);
  EXPECT_DOUBLE_EQ(all.server_host_bytes, 17.5e6);
}

TEST(ExchangeCost, counts_the_messages_in_a_row) {
  ExchangeSetting setting = unit(8);
  setting.latency_seconds = 0.01;
  EXPECT_NEAR(seconds(Architecture::kAllreduce, 0, setting), 1.75 + 14 * 0.01, 1e-3);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 8, setting), 1 + 2 * 0.01, 1e-3);
  // Small: by doubling, three rounds.
  setting.bytes = 1000;
  EXPECT_NEAR(seconds(Architecture::kAllreduce, 0, setting), 3 * (0.01 + 1e-4), 1e-9);
}

TEST(ExchangeCost, of_a_single_worker_is_nothing_without_a_host_to_reach) {
  EXPECT_EQ(seconds(Architecture::kAllreduce, 0, unit(1, kBytes)), 0);
  EXPECT_EQ(seconds(Architecture::kColocatedServers, 1, unit(1, kBytes)), 0);
  EXPECT_EQ(seconds(Architecture::kDedicatedServers, 1, unit(1, kBytes)), 2);
}

TEST(ServerBlocks, give_every_server_some_of_a_small_model) {
  constexpr std::uint64_t kKilobyte = 1024;
  EXPECT_EQ(server_block_bytes(16 * 256 * kKilobyte, 1), 256 * kKilobyte);
  EXPECT_EQ(server_block_bytes(4'000'000, 2), 125'056);  // A multiple of 64 above 125,000.
  EXPECT_EQ(server_block_bytes(4'000'000, 8), 71'488);   // Seven, as eight would be smaller than 64 KB.
  EXPECT_EQ(server_block_bytes(4'000'000, 250), 16'000);
  EXPECT_EQ(server_block_bytes(4, 4), 4 * kKilobyte);
  EXPECT_EQ(server_block_bytes(100'000 * kKilobyte, 1), 4096'000);
  EXPECT_EQ(server_block_bytes(std::uint64_t{1} << 50, 4), 4096 * kKilobyte);
  // 16 of them on each server.
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 2, unit(8, 0)), 4 * (1 + 1.0 / 16), 1e-2);
  // A single block is on one server, however many there are; of five blocks two are on the same of four.
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 8, unit(8, kBytes)), 16, 1e-9);
  EXPECT_NEAR(seconds(Architecture::kDedicatedServers, 4, unit(8, kBytes / 5)), 8 * 0.4 * 1.5, 1e-9);
}

TEST(ChooseArchitecture, takes_allreduce_until_there_are_hosts_enough) {
  const ExchangeSetting setting = unit(8, 0);
  const auto chosen = [&](int spare_hosts) {
    const ArchitectureChoice choice = choose_architecture(setting, spare_hosts);
    return std::pair(choice.architecture, choice.servers);
  };
  EXPECT_EQ(chosen(0), std::pair(Architecture::kAllreduce, 0));
  EXPECT_EQ(chosen(4), std::pair(Architecture::kAllreduce, 0));  // 2.125 M/B against 1.75.
  EXPECT_EQ(chosen(6), std::pair(Architecture::kDedicatedServers, 6));
  EXPECT_EQ(chosen(8), std::pair(Architecture::kDedicatedServers, 8));
  EXPECT_EQ(chosen(100), std::pair(Architecture::kDedicatedServers, 8));
}

TEST(ChooseArchitecture, takes_servers_at_the_workers_where_latency_counts) {
  ExchangeSetting setting = unit(64, 0);
  setting.latency_seconds = 0.001;
  const ArchitectureChoice choice = choose_architecture(setting, 0);
  EXPECT_EQ(choice.architecture, Architecture::kColocatedServers);
  EXPECT_EQ(choice.servers, 64);
  EXPECT_LE(choice.cost.seconds, 2.03);
}

TEST(ExchangeCost, refuses_what_cannot_be) {
  const ExchangeSetting good = unit(8);
  EXPECT_THROW(exchange_cost(Architecture::kDedicatedServers, 0, good), Error);
  EXPECT_THROW(exchange_cost(Architecture::kColocatedServers, 9, good), Error);
  EXPECT_THROW(choose_architecture(good, -1), Error);
  for (const auto spoil :
       {+[](ExchangeSetting& setting) { setting.workers = 0; }, +[](ExchangeSetting& setting) { setting.bytes = 0; },
        +[](ExchangeSetting& setting) { setting.bytes_per_second = 0; },
        +[](ExchangeSetting& setting) { setting.latency_seconds = -1; }}) {
    ExchangeSetting bad = good;
    spoil(bad);
    EXPECT_THROW(exchange_cost(Architecture::kAllreduce, 0, bad), Error);
  }
}

}  // namespace
}  // namespace gyre::collectives
