#include "gyre/jobs/spec/command.h"

#include <nlohmann/json.hpp>

#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::spec {

JobSpec job_of_command(const CommandJob& command) {
  JobSpec job;
  job.node_count = command.nodes;
  job.toolkit = GyreSettings{.program = command.program,
                             .processes_per_node = command.processes_per_node,
                             .restarts = command.restarts,
                             .retries = command.retries,
                             .servers = command.servers};
  job.std_out_err_path_prefix = kLogsOnTheNode;
  job.environment_variables = command.environment;
  job.job_preparation_command_line = command.preparation;
  job.requirements = command.requirements;
  std::string text;
  try {
    text = nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, "the command is not UTF-8 text");
  }
  return job_or_throw(parse_job(text), "");  // What a file must obey, a command must.
}

}  // namespace gyre::jobs::spec
