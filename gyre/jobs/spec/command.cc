#include "gyre/jobs/spec/command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::spec {

namespace {

/// Shell: where the virtual environment `hash` of this account lies on a node.
std::string environment_folder(const std::string& hash) {
  return fmt::format("/var/tmp/gyre-environments-$(id -u)/{}", hash);
}

/// Shell: puts its programs first.
std::string entering(const std::string& hash) {
  return fmt::format(R"(export VIRTUAL_ENV="{}"; export PATH="$VIRTUAL_ENV/bin:$PATH")", environment_folder(hash));
}

/// Shell, for each node before the job: makes a virtual environment of what a requirements file names, unless an
/// earlier job has, in which the packages of the node's own Python are found last; then `next`, inside it.
std::string preparation_of(const std::string& requirements, const std::string& hash, const std::string& next) {
  constexpr const char* kLines = R"((
set -e
d="{folder}"; umask 077; mkdir -p "${{d%/*}}"
[ -O "${{d%/*}}" ] || {{ echo "gyre: ${{d%/*}} belongs to somebody else" >&2; exit 1; }}
exec 9> "$d.lock"; flock 9
[ ! -e "$d/complete" ] || exit 0
rm -rf "$d"
python3 -m venv "$d"
python3 -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' > "$d/node.pth"
cp "$d/node.pth" "$("$d/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_node.pth"
cat > "$d/requirements.txt" <<'{hash}'
{requirements}
{hash}
"$d/bin/pip" install -q --disable-pip-version-check -r "$d/requirements.txt" || {{
  rm -rf "$d"; echo "gyre: cannot install what --requirements names" >&2; exit 1; }}
touch "$d/complete"
)
[ $? -eq 0 ] || exit 1
{entering}
{next})";
  return fmt::format(kLines, fmt::arg("folder", environment_folder(hash)), fmt::arg("requirements", requirements),
                     fmt::arg("hash", hash), fmt::arg("entering", entering(hash)), fmt::arg("next", next));
}

/// The same program inside it. In bash's line nothing is replaced beforehand (GyreSettings).
std::vector<std::string> inside_environment(const std::string& hash, const std::vector<std::string>& program) {
  std::vector<std::string> words = {"bash", "-c", entering(hash) + R"(; exec "$@")", "bash"};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

}  // namespace

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
  if (command.requirements) {
    const std::string hash = hex(sha256(as_bytes(*command.requirements)));
    std::get<GyreSettings>(job.toolkit).program = inside_environment(hash, command.program);
    job.job_preparation_command_line =
        preparation_of(*command.requirements, hash, command.preparation.value_or("true"));
  }
  std::string text;
  try {
    text = nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, "the command is not UTF-8 text");
  }
  return job_or_throw(parse_job(text), "");  // What a file must obey, a command must.
}

}  // namespace gyre::jobs::spec
