#include "gyre/jobs/drivers/ssh/internal/scripts.h"

#include <fmt/format.h>

namespace gyre::jobs::drivers::ssh {

namespace {

/// A node whose job has ended, and whose service is not there to hear of it, waits for so long.
constexpr int kUntoldSeconds = 15 * 60;

std::string beginning(const Node& node) {
  return fmt::format(R"sh(echo here
root={root}
finds() {{
  pid=$(cat "$root/supervisor.pid" 2> /dev/null) && tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null |
    grep -qF -- "--root $root "
}}
watch() {{
  finds && echo runs
  while finds; do sleep 0.3; done
  echo over
}}
)sh",
                     fmt::arg("root", quoted(node.root)));
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string start_script(const SshOptions& options, const Node& node, const std::string& program,
                         const std::string& key) {
  return beginning(node) +
         fmt::format(R"sh(umask 077
if [ -d "$root" ]; then
  watch
  exit
fi
program=$(command -v {program}) || {{ echo missing; exit; }}
mkdir -m 0755 "$root" || exit 1
cat > "$root/agent.key" <<'GYRE_KEY' || exit 1
{key}
GYRE_KEY
set -- $SSH_CONNECTION
address=${{3-}}
set --
[ "$(id -u)" = 0 ] && set -- --job-user {user}
exec 3> "$root/supervisor.log" 4< "$root/supervisor.log"
umask 022
setsid sh -c 'echo $$ > "$0/supervisor.pid" && exec "$@"' "$root" \
  "$program" agent --supervise --service {service} --key-file "$root/agent.key" --node {node} --root "$root" \
  --address "$address" --give-up-seconds {give_up} --untold-seconds {untold} "$@" < /dev/null >&3 2>&3 &
child=$!
echo runs
wait "$child"
code=$?
[ $code = 0 ] || {{ tail -c 600 <&4; echo; }}
[ -d "$root" ] && [ ! -e "$root/agent.lock" ] || {{ echo over $code; exit; }}
rm -f "$root/agent.key" "$root/supervisor.log" "$root/supervisor.pid" && rmdir "$root"
echo no agent $code
)sh",
                     fmt::arg("program", program), fmt::arg("key", key), fmt::arg("user", quoted(options.job_user)),
                     fmt::arg("service", quoted(net::to_string(node.service))), fmt::arg("node", quoted(node.program)),
                     fmt::arg("give_up", options.give_up.count()), fmt::arg("untold", kUntoldSeconds));
}

std::string watch_script(const Node& node) { return beginning(node) + "watch\n"; }

std::string end_script(const Node& node) {
  return beginning(node) + R"sh(times=0
while finds; do
  [ $((times % 20)) = 0 ] && kill -TERM "$pid"
  [ $times -gt 100 ] && kill -KILL "$pid"
  times=$((times + 1))
  sleep 0.3
done
echo over
)sh";
}

std::string copied_program(const std::string& sha256) {
  return fmt::format(R"sh("$({}; echo "$cache")/gyre/{}/bin/gyre")sh", kCacheFolder, sha256);
}

std::string copy_command(const std::string& sha256) {
  const std::string script = fmt::format(
      R"sh({cache}; umask 022; place="$cache/gyre"; part="$place/{sha256}.$$"
mkdir -p "$part" && cat > "$part/archive" && echo "{sha256}  $part/archive" | sha256sum -c --status &&
  tar -xf "$part/archive" -C "$part" && rm "$part/archive" && mv -T "$part" "$place/{sha256}" ||
  {{ rm -rf "$part"; [ -d "$place/{sha256}" ]; }})sh",
      fmt::arg("cache", kCacheFolder), fmt::arg("sha256", sha256));
  return "sh -c " + quoted(script);
}

}  // namespace gyre::jobs::drivers::ssh
