#include "daemon/tuning/tuning_policy.h"

#include <fnmatch.h>

#include <charconv>

#include "codec/recipe.h"
#include "daemon/access/user_name.h"

namespace tern::daemon {
namespace {

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Status read_bound(std::string_view word, std::string_view text, double max,
                  std::optional<double>& bound) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0.0 && value <= max)) {
    return fail(Errc::invalid_argument, std::string(word) + ": the bound is a number from 0 to " +
                                            std::to_string(static_cast<int>(max)));
  }
  bound = value;
  return {};
}

// How a rule about a job ends: all its tensors.
constexpr std::string_view kOfJob = "/*";

Status read_weight(std::string_view text, std::string_view pattern, std::uint32_t& weight) {
  constexpr std::uint32_t kMaxWeight = 100;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  if (error != std::errc{} || end != text.data() + text.size() || weight < 1 ||
      weight > kMaxWeight) {
    return fail(Errc::invalid_argument, "policy: weight=" + std::string(text) +
                                            ": a weight is a whole number from 1 to " +
                                            std::to_string(kMaxWeight));
  }
  if (!pattern.ends_with(kOfJob)) {
    return fail(Errc::invalid_argument,
                "policy: weights are of jobs; write JOB/* weight=" + std::string(text) +
                    " in place of the pattern " + std::string(pattern));
  }
  return {};
}

}  // namespace

tuner::Bounds TuningAdvice::bounds(tuner::Level fallback) const noexcept {
  tuner::Bounds bounds = tuner::bounds_of(level.value_or(fallback));
  if (loss) bounds.loss = *loss;
  if (residual) bounds.residual = *residual;
  return bounds;
}

Status read_advice(std::string_view word, TuningAdvice& advice) {
  if (const auto level = tuner::parse_level(word)) {
    advice.level = level;
    return {};
  }
  std::string_view rest = word;
  if (take_prefix(rest, "loss<=")) return read_bound(word, rest, 1.0, advice.loss);
  if (take_prefix(rest, "residual<=")) return read_bound(word, rest, 1000.0, advice.residual);
  if (take_prefix(rest, "recipe=")) {
    if (!rest.starts_with("replay:")) {
      const auto recipe = codec::parse_recipe(rest);
      if (!recipe) return fail(Errc::bad_recipe, recipe.error().text);
    }
    advice.recipe = rest;
    return {};
  }
  return fail(Errc::invalid_argument,
              std::string(word) +
                  " is none of lossless, conservative, balanced, aggressive, loss<=NUMBER, "
                  "residual<=NUMBER, recipe=TEXT");
}

Status TuningPolicy::read_rule(std::string_view text, Rule& rule) {
  const auto words = split(text, ' ');
  if (words.empty()) return {};
  rule.pattern = words[0];
  if (words.size() == 1) {
    return fail(Errc::invalid_argument,
                "policy: the rule \"" + std::string(text) + "\" says nothing after its pattern");
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (take_prefix(word, "weight=")) {
      if (auto read = read_weight(word, rule.pattern, rule.weight); !read) return read;
      continue;
    }
    if (take_prefix(word, "user=")) {
      rule.user = user_named(std::string(word));
      if (rule.user) continue;
      // No mistake for ever: whoever knows the users may just not answer.
      return fail(Errc::unreachable,
                  "policy: user=" + std::string(word) + ": this machine has no such user");
    }
    rule.advises = true;
    if (auto read = read_advice(words[i], rule.advice); !read) {
      return fail(read.error().code, "policy: " + read.error().text);
    }
  }
  if (rule.user && (rule.weight == 0 || rule.advises)) {
    return fail(Errc::invalid_argument, "policy: user= is for weights; write " + rule.pattern +
                                            " weight=NUMBER user=NAME, and other words in a rule "
                                            "of their own");
  }
  return {};
}

Result<TuningPolicy> TuningPolicy::parse(std::string_view text) {
  TuningPolicy policy;
  policy.text_ = text;
  for (const std::string_view rule_text : split(text, ';')) {
    Rule rule;
    if (auto read = read_rule(rule_text, rule); !read) return tl::unexpected(read.error());
    if (!rule.pattern.empty()) policy.rules_.push_back(std::move(rule));
  }
  return policy;
}

TuningAdvice TuningPolicy::advice(const std::string& job, const std::string& name) const {
  for (const Rule& rule : rules_) {
    if (!rule.advises) continue;
    const bool with_job = rule.pattern.find('/') != std::string::npos;
    std::string subject = name;
    if (with_job) subject.insert(0, job + "/");
    if (::fnmatch(rule.pattern.c_str(), subject.c_str(), 0) == 0) return rule.advice;
  }
  return {};
}

std::uint32_t TuningPolicy::weight(const std::string& job, std::uint32_t user) const {
  for (const Rule& rule : rules_) {
    if (rule.weight == 0 || (rule.user && *rule.user != user)) continue;
    // A job's name may have slashes; read_weight() has seen that this ends with its tensors.
    const std::string of_job = rule.pattern.substr(0, rule.pattern.size() - kOfJob.size());
    if (::fnmatch(of_job.c_str(), job.c_str(), 0) == 0) return rule.weight;
  }
  return 1;
}

}  // namespace tern::daemon
