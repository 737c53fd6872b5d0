// Job and cluster files come from anybody: whatever the bytes, they are refused, or read as a spec that can be shown
// and kept, and that comes back as it was.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

namespace {

namespace spec = gyre::jobs::spec;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Spec, typename Parse>
void check(std::string_view text, const spec::ParseOptions& options, Parse parse) {
  const spec::Parsed<Spec> parsed = parse(text, options);
  const bool has_error = std::ranges::any_of(
      parsed.problems, [](const spec::Problem& problem) { return problem.severity == spec::Severity::kError; });
  require(parsed.spec.has_value() != has_error);
  require(parsed.problems.size() <= 2 * spec::kMostProblems);
  // Every message must be text that an answer in JSON can hold.
  for (const spec::Problem& problem : parsed.problems) static_cast<void>(nlohmann::json(describe(problem)).dump());
  if (!parsed.spec) return;
  static_cast<void>(to_json(*parsed.spec).dump());
  const nlohmann::json file = {{"properties", to_json(*parsed.spec, spec::Secrets::kIncluded)}};
  require(parse(file.dump(), {}).spec == parsed.spec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned choices = data[0];
  spec::ParseOptions options;
  options.format = static_cast<spec::Format>(choices % 3);
  options.strict = (choices & 4) != 0;
  if ((choices & 8) != 0) options.version = static_cast<spec::ApiVersion>(choices / 16 % 3);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  check<spec::JobSpec>(text, options, spec::parse_job);
  check<spec::ClusterSpec>(text, options, spec::parse_cluster);
  return 0;
}
