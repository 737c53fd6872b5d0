#include "gyre/store/sources/aws_keys.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::store {

namespace {

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

}  // namespace

std::optional<AwsKeys> aws_keys_of_profile(const std::string& text, const std::string& profile) {
  std::map<std::string, std::string> fields;
  bool inside = false;
  bool found = false;
  for (const std::string& whole : split(text, '\n')) {
    const std::string line = trimmed(whole);
    if (line.starts_with('[')) {
      inside = trimmed(line.substr(1, line.find(']') - 1)) == profile;
      found = found || inside;
    } else if (const std::size_t equals = line.find('=');
               inside && equals != std::string::npos && line.front() != '#') {
      fields[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
    }
  }
  if (!found) return std::nullopt;
  AwsKeys keys{.access_key = fields["aws_access_key_id"],
               .secret_key = fields["aws_secret_access_key"],
               .session_token = fields["aws_session_token"]};
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the profile '{}' lacks aws_access_key_id or aws_secret_access_key; other ways to sign in "
                            "are not supported",
                            profile));
  }
  return keys;
}

}  // namespace gyre::store
