@echo off
rem start.bat [OPTION]...: starts the server, and opens its page when it answers.
rem The options are those of chimere serve, for example: start.bat -m D:\models\model.gguf
setlocal
if "%~1"==":page" goto page
start "" /b cmd /c call "%~f0" :page
"%~dp0chimere.exe" serve %*
pause
exit /b

:page
rem A request to accept requests succeeds when the server runs; ping waits for a second.
set /a tries=0
:again
"%~dp0chimere.exe" drain --undo >nul 2>nul
if not errorlevel 1 goto open
set /a tries+=1
if %tries% geq 120 exit /b
ping -n 2 127.0.0.1 >nul
goto again
:open
start "" http://127.0.0.1:8081/
