// A team's queue and its history are long: many jobs at once keep their order, and years of finished ones do not make
// the service slow. `./dev test --long` takes the numbers that are promised; otherwise they are smaller.
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "gyre/base/effort_test_support.h"
#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/http/http_test_support.h"

namespace gyre::jobs::http {
namespace {

double milliseconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - begin).count();
}

class ScaleTest : public ServiceOverHttpTest {};

TEST_F(ScaleTest, many_jobs_run_each_once_and_start_in_the_order_of_submission) {
  const int count = is_long_test() ? 1'000 : 40;
  const std::string seconds = is_long_test() ? "1" : "0.1";
  make_cluster(8);
  std::vector<double> submits;
  for (int i = 0; i < count; ++i) {
    const spec::JobSpec job =
        job_of(1, fmt::format("echo {} >> $AZ_BATCHAI_MOUNT_ROOT/share/ran-{}; sleep {}", i, i, seconds));
    const auto begin = SteadyClock::now();
    submit(fmt::format("job-{}", i), job);
    submits.push_back(milliseconds_since(begin));
  }
  const auto begin = SteadyClock::now();
  for (int i = count - 1; i >= 0; --i) {
    while (state_of(fmt::format("job-{}", i)) != ExecutionState::kSucceeded) {
      ASSERT_NE(state_of(fmt::format("job-{}", i)), ExecutionState::kFailed) << events_of(fmt::format("job-{}", i));
      ASSERT_LT(milliseconds_since(begin), 1'000.0 * (60 + count));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  const double took_ms = milliseconds_since(begin);
  resources::TimeUs last_start = 0;
  for (int i = 0; i < count; ++i) {
    const resources::Job job = service_->job(named(fmt::format("job-{}", i)));
    EXPECT_EQ(content_of(share_ / fmt::format("ran-{}", i)), fmt::format("{}\n", i));
    EXPECT_EQ(job.attempts, 1);
    EXPECT_GE(*job.execution_info.start_time, last_start) << "job " << i << " started before an earlier one";
    last_start = *job.execution_info.start_time;
  }
  std::ranges::sort(submits);
  std::printf("%d jobs in %.1f s; submit: median %.2f ms, p99 %.2f ms\n", count, took_ms / 1000,
              submits[submits.size() / 2], submits[submits.size() * 99 / 100]);
}

// Everybody who follows a log gets all of it, however many there are.
TEST_F(ScaleTest, two_hundred_followers_of_a_log_get_every_line) {
  constexpr int kFollowers = 200;
  make_cluster(1);
  submit("told", job_of(1, "for i in $(seq 1 200); do echo line $i; sleep 0.01; done; printf 'the end'"));
  EXPECT_TRUE(
      wait_until([&] { return as_ada(Method::kGet, path_of("told") + "/files/stdouterr/stdout.txt").status == 200; }));
  std::vector<std::string> texts(kFollowers);
  {
    std::vector<std::thread> threads;
    for (int i = 0; i < kFollowers; ++i) {
      threads.emplace_back([this, &text = texts[static_cast<std::size_t>(i)]] {
        net::http::Client follower = client(ada_token_);
        follower.follow(net::http::parse_target(path_of("told") + "/files/stdouterr/stdout.txt"), 0,
                        [&](std::string_view bytes) { text += bytes; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(std::ranges::count(text, '\n'), 200);
    EXPECT_TRUE(text.ends_with("line 200\nthe end"));
  }
}

TEST_F(ScaleTest, a_page_of_a_long_history_is_listed_at_once) {
  const int count = is_long_test() ? 100'000 : 20'000;
  make_cluster(0);
  submit("pattern", job_of(1, "true"));
  stop_serving();
  service_.reset();
  {
    catalog::Catalog catalog = catalog::Catalog::open(options_.folder / "catalog.db");
    const auto workspace = catalog.workspaces().find("w");
    const auto experiment = catalog.experiments().find(workspace->id, "e");
    const auto cluster = catalog.clusters().find(workspace->id, "c");
    const std::string spec = catalog.jobs().find(experiment->id, "pattern")->spec;
    for (int made = 0; made < count;) {
      catalog.together([&] {
        for (int i = 0; i < 10'000 && made < count; ++i, ++made) {
          const catalog::Job job = catalog.jobs().create({.experiment = experiment->id,
                                                          .cluster = cluster->id,
                                                          .name = fmt::format("old-{}", made),
                                                          .spec = spec});
          catalog.jobs().terminate(job.id, {"request", ""});
        }
      });
    }
  }
  start();
  serve();
  net::http::Client ada = client(ada_token_);
  std::map<std::string, double> best;
  for (const std::string query : {"", "&order=newest", "&state=failed", "&after=9000", "&state=running"}) {
    for (int turn = 0; turn < 5; ++turn) {
      const auto begin = SteadyClock::now();
      const Answer answer = ask(ada, Method::kGet, "/workspaces/w/jobs?maxresults=100" + query);
      const double took_ms = milliseconds_since(begin);
      ASSERT_EQ(answer.status, 200) << answer.body;
      const std::size_t expected = query == "&state=running" ? 0 : 100;
      ASSERT_EQ(nlohmann::json::parse(answer.body).at("value").size(), expected);
      if (turn == 0 || took_ms < best[query]) best[query] = took_ms;
    }
    std::printf("a page of 100 out of %d jobs, '%s': %.1f ms\n", count, query.c_str(), best[query]);
    EXPECT_LT(best[query], 50.0) << query;
  }
}

}  // namespace
}  // namespace gyre::jobs::http
