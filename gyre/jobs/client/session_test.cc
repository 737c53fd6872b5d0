// Every verb speaks through this: what it says of a failure is what people read.
#include "gyre/jobs/client/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "gyre/jobs/client/client_test_support.h"

namespace gyre::jobs::client {
namespace {

using testing::HasSubstr;

using SessionTest = ClientTest;

TEST_F(SessionTest, a_list_is_read_over_all_its_pages_and_no_further_than_asked) {
  Session session = session_of("ada-token");
  for (int i = 0; i < 7; ++i) session.put(path_of({"w", "e", "j" + std::to_string(i)}), Json::parse(http::kJobFile));
  const Path jobs = {"workspaces", "w", "jobs"};
  EXPECT_EQ(session.list(jobs, {{"maxresults", "3"}}).size(), 8U);
  bool more = false;
  EXPECT_EQ(session.list(jobs, {{"maxresults", "3"}}, 3, &more).size(), 3U);
  EXPECT_TRUE(more);
}

TEST_F(SessionTest, what_does_not_exist_and_what_one_may_not_use_look_alike) {
  Session ada = session_of("ada-token");
  EXPECT_TRUE(ada.exists(path_of(kPlace)));
  EXPECT_FALSE(ada.exists({"workspaces", "other"}));
  EXPECT_FALSE(ada.exists({"workspaces", "none"}));
}

TEST_F(SessionTest, the_servers_own_words_are_the_error) {
  Session session = session_of("ada-token");
  try {
    session.get({"workspaces", "w", "experiments", "e", "jobs", "none"});
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_TRUE(is_not_found(error));
    EXPECT_THAT(error.what(), HasSubstr("none"));
  }
}

TEST_F(SessionTest, a_server_that_is_away_is_one_sentence_with_the_remedy) {
  Session session = session_of("ada-token");
  server_.reset();
  try {
    session.get({"workspaces"});
    FAIL() << "somebody answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("no job server answers at http://127.0.0.1:"));
    EXPECT_THAT(error.what(), HasSubstr("gyre server"));
  }
}

TEST_F(SessionTest, parts_of_a_file_end_where_it_ends) {
  write_log("j", "stdout.txt", "0123456789");
  const Path file = below(path_of(kPlace), "files", "stdouterr", "stdout.txt");
  Session session = session_of("ada-token");
  EXPECT_EQ(session.read(file, 2, 3).bytes, "234");
  EXPECT_EQ(session.read(file, 8, 100).bytes, "89");
  EXPECT_EQ(session.read(file, 10, 100).bytes, "");
  EXPECT_FALSE(session.read(file, 0, 1).version.empty());
}

TEST_F(SessionTest, events_are_handed_on_until_the_job_has_ended_and_across_a_restart) {
  Session session = session_of("ada-token", std::chrono::seconds(30));
  service_->set_state({"w", "e", "j"}, resources::ExecutionState::kRunning);
  std::vector<std::string> states;
  std::thread later;
  session.events(below(path_of(kPlace), "events"), [&](const net::http::ServerEvent& event) {
    states.push_back(Json::parse(event.data).value("to", ""));
    if (states.size() == 1) {
      later = std::thread([&] {
        start_again();
        service_->set_state({"w", "e", "j"}, resources::ExecutionState::kSucceeded);
      });
    }
    return true;
  });
  later.join();
  EXPECT_EQ(states, (std::vector<std::string>{"running", "succeeded"}));
}

}  // namespace
}  // namespace gyre::jobs::client
