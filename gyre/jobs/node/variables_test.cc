// What `gyre job validate` knows, what the guide says and what processes get must be the same variables.
#include "gyre/jobs/spec/variables.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/launch_plan.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::node {

using orders::NodeFacts;
using orders::WorkOrder;

namespace {

std::string guide(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(std::string(GYRE_GUIDES "/") + name).rdbuf();
  return text.str();
}

WorkOrder order_of(const spec::Toolkit& toolkit) {
  WorkOrder order;
  order.attempt = "a1";
  order.job_name = "job";
  order.cluster_name = "cluster";
  order.shared_folder = "/shared";
  order.job.node_count = 2;
  order.job.toolkit = toolkit;
  order.job.std_out_err_path_prefix = "/logs";
  order.nodes = {{.id = "n0", .address = "10.0.0.4"}, {.id = "n1", .address = "10.0.0.5"}};
  return order;
}

/// AZ_BATCH… of all that the first process of the job gets.
std::set<std::string> set_by_nodes(const WorkOrder& order) {
  std::vector<NodeFacts> facts;
  for (int node = 0; node < 2; ++node) {
    facts.push_back({.ports = std::vector<int>(static_cast<std::size_t>(ports_needed(order, node)), 2222)});
  }
  const Variables of_process = launch_plan(order, facts).front().processes.front().variables;
  std::set<std::string> names;
  for (const auto& [name, value] : job_environment(order, NodeFolders("/node"), {}, of_process).variables) {
    if (name.starts_with("AZ_BATCH")) names.insert(name);
  }
  return names;
}

TEST(JobVariables, are_those_that_nodes_set_for_each_toolkit) {
  const spec::PythonScript python{"/train.py", std::nullopt};
  const spec::Toolkit all[] = {
      spec::CustomToolkitSettings{"true"},
      spec::CustomMpiSettings{"true", 2},
      spec::HorovodSettings{python, "", 2},
      spec::ChainerSettings{python, "", 2},
      spec::CntkSettings{python, "", 2},
      spec::CaffeSettings{python, "", 2},
      spec::Caffe2Settings{python, ""},
      spec::PyTorchSettings{python, "", 2, spec::PyTorchBackend::kGloo},
      spec::PyTorchSettings{python, "", 2, spec::PyTorchBackend::kMpi},
      spec::PyTorchSettings{python, "", 2, std::nullopt},
      spec::TensorFlowSettings{python, "", "", "", 2, 1},
      spec::GyreSettings{{"true"}, 1, 0},
  };
  for (const spec::Toolkit& toolkit : all) {
    const WorkOrder order = order_of(toolkit);
    std::set<std::string> expected;
    for (const spec::JobVariable& variable : spec::job_variables()) {
      if (spec::has_variable(variable, order.job)) expected.emplace(variable.name);
    }
    EXPECT_EQ(set_by_nodes(order), expected) << spec::tool_type(toolkit);
  }
}

TEST(JobVariables, are_the_table_of_the_guide) {
  std::string table = "| variable | who has it | value |\n|---|---|---|\n";
  for (const spec::JobVariable& variable : spec::job_variables()) {
    table += fmt::format("| `{}` | {} | {} |\n", variable.name, spec::owner_name(variable.whose), variable.value);
  }
  EXPECT_THAT(guide("from_batch_ai.md"), testing::HasSubstr(table));
}

// A reader copies it.
TEST(JobVariables, the_job_file_of_the_guide_is_valid_and_refers_to_nothing_that_is_not_there) {
  const std::string text = guide("jobs.md");
  const std::string begin = "```json\n";
  const std::size_t at = text.find(begin) + begin.size();
  const auto parsed = spec::parse_job(text.substr(at, text.find("```", at) - at));
  EXPECT_TRUE(parsed.spec);
  for (const spec::Problem& problem : parsed.problems) ADD_FAILURE() << spec::describe(problem, "jobs.md");
}

}  // namespace
}  // namespace gyre::jobs::node
