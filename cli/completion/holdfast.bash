# bash completion for holdfast(1)

# _holdfast_ask COMMAND KEY: one value a line, of the server that the words so far name
_holdfast_ask() {
	local i which=()
	for ((i = 1; i < cword; i++)); do
		case ${words[i]} in
		--server | --state-dir | --token-file | --ca) which+=("${words[i]}" "${words[i + 1]}") ;;
		--server=* | --state-dir=* | --token-file=* | --ca=* | --insecure) which+=("${words[i]}") ;;
		esac
	done
	holdfast "${which[@]}" --json "$1" 2>/dev/null | sed -n 's/^ *"'"$2"'": "\(.*\)",\{0,1\}$/\1/p'
}

_holdfast_offer() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_holdfast_ids() {
	_holdfast_offer "$(_holdfast_ask clients id)"
	__ltrim_colon_completions "$cur"
}

_holdfast() {
	local cur prev words cword split command='' argument='' n=0 i
	_init_completion -s -n : || return
	case $prev in
	--state-dir) _filedir -d; return ;;
	--token-file | --ca) _filedir; return ;;
	--status) _holdfast_offer 'active notified unreachable crashed'; return ;;
	--protocol) _holdfast_offer 'nlm nsm'; return ;;
	--client) _holdfast_ids; return ;;
	--share) _holdfast_offer "$(_holdfast_ask shares name)"; return ;;
	--address) _holdfast_offer "$(_holdfast_ask clients address)"; return ;;
	--file) _holdfast_offer "$(_holdfast_ask locks file)"; return ;;
	--server | --range | --silent-for | --name) return ;;
	esac
	if [[ $cur == -* ]]; then
		_holdfast_offer '--json --server --state-dir --token-file --ca --insecure --client --share --status --protocol --file --range --address --silent-for --name --yes --no-wait --once --help --version'
		return
	fi
	for ((i = 1; i < cword; i++)); do
		case ${words[i]} in
		--server | --state-dir | --token-file | --ca | --client | --share | --status | --protocol | --file | --range | --address | --silent-for | --name) ((i++)) ;;
		-*) ;;
		*) case $((n++)) in 0) command=${words[i]} ;; 1) argument=${words[i]} ;; esac ;;
		esac
	done
	case $n$command in
	0) _holdfast_offer 'status clients locks waiters reservations shares usage limits grace notify reload release cluster store exports events top doctor dashboard' ;;
	1clients | 1notify | 1release) _holdfast_ids ;;
	1grace) _holdfast_offer end ;;
	1top) _holdfast_offer clients ;;
	1cluster) _holdfast_offer 'move take' ;;
	1store) _holdfast_offer 'check dump copy downgrade' ;;
	2store | 3store) _filedir -d ;;
	1exports) _holdfast_offer import ;;
	2exports) _filedir ;;
	2cluster) [[ $argument == move ]] && _holdfast_offer "$(_holdfast_ask cluster name)" ;;
	1doctor) _known_hosts_real -- "$cur" ;;
	esac
}

complete -F _holdfast holdfast
