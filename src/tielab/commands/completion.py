"""``tielab completion``: what a shell must know to complete ``tielab`` and ``python train.py``."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_TIELAB_COMPLETE"

BASH_TRAINING = r"""
_tielab_train_completion() {
    local python=${COMP_WORDS[0]} script=${COMP_WORDS[1]} line=${COMP_LINE:0:$COMP_POINT} word choices
    script=${script//[\\\'\"]/}  # as readline gives it, a name with spaces is quoted
    # Completing runs the script: only one of ours.
    if [[ $COMP_CWORD -lt 2 || $script != *train.py ]] || ! grep -qs 'tielab\.start' "$script"; then
        [[ -n $_tielab_python_completion ]] && "$_tielab_python_completion" "$@"
        return
    fi
    compopt -o nospace
    word=${line##* }
    line="python train.py${line#*train.py}"
    choices=$(COMP_LINE=$line "$python" "$script" -sc query=tielab 2>/dev/null)
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    # Readline's word begins after the last = or : of ours.
    if [[ $word == *[=:]* && $COMP_WORDBREAKS == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[=:]}"}"}")
    fi
}
_tielab_python_completion=$(complete -p python 2>/dev/null | sed -n 's/.* -F \([^ ]*\) .*/\1/p')
[[ $_tielab_python_completion == _tielab_train_completion ]] && _tielab_python_completion=
complete -o default -F _tielab_train_completion python python3
"""

ZSH_TRAINING = r"""
_tielab_train_completion() {
    local script=${words[2]}
    # Completing runs the script: only one of ours.
    if [[ $CURRENT -lt 3 || $script != *train.py ]] || ! grep -qs 'tielab\.start' "$script"; then
        if (( $+functions[_python] )); then _python "$@"; else _files; fi
        return
    fi
    local -a choices
    choices=("${(@f)$(COMP_LINE="python train.py ${(j: :)words[3,CURRENT]}" \
        "${words[1]}" "$script" -sc query=tielab 2>/dev/null)}")
    compadd -Q -S '' -- $choices
}
compdef _tielab_train_completion python python3
"""

FISH_TRAINING = r"""
function __tielab_is_training
    set -l words (commandline -opc)
    # Completing runs the script: only one of ours.
    test (count $words) -ge 2; and string match -q '*train.py' -- $words[2]
    and grep -qs 'tielab\.start' $words[2]
end

function __tielab_train_completion
    set -l words (commandline -opc)
    set -lx COMP_LINE (string join ' ' -- python train.py $words[3..-1] (commandline -ct))
    $words[1] $words[2] -sc query=tielab 2>/dev/null
end

for name in python python3
    complete --no-files --command $name \
        --condition __tielab_is_training --arguments '(__tielab_train_completion)'
end
"""

BASH_FOLDERS = r"""
_tielab_folder_completion() {
    _tielab_completion "$@"
    # Readline then escapes what the shell would split.
    [[ ${COMPREPLY[0]} == */* ]] && compopt -o filenames
}
complete -o nosort -F _tielab_folder_completion tielab
"""

TRAINING = {"bash": BASH_FOLDERS + BASH_TRAINING, "zsh": ZSH_TRAINING, "fish": FISH_TRAINING}


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(list(TRAINING)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes TAB complete tielab and the overrides of python train.py in SHELL.

    Commands, options and the folders of runs; keys, options of groups and values that a key can have.

    \b
    eval "$(tielab completion bash)"      in ~/.bashrc
    eval "$(tielab completion zsh)"       in ~/.zshrc, after compinit
    tielab completion fish | source       in ~/.config/fish/config.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    source = made(ctx.find_root().command, {}, "tielab", VARIABLE).source()
    click.echo(source + TRAINING[shell], nl=False)
